#include "kernels/host/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_half.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/host/float_ops-inl.h"
#include "kernels/host/half_format-inl.h"
#include "kernels/host/plain_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {

// Words: the format in which lanes are neighbours, as they are beside float32 in memory.
template <typename Format, typename Words>
void reduce_stage(const ReduceCall& call) {
  switch (call.args.stage) {
    case ReduceStage::Whole:
      return reduce_floats<Format>(call);
    case ReduceStage::Partial:
      return reduce_floats_between<Words, PlainFormat<float>>(call);
    case ReduceStage::Final:
      return reduce_floats_between<PlainFormat<float>, Words>(call);
    case ReduceStage::Recode:
      return;  // a codec's
  }
}

void reduce_half(const ReduceCall& call) {
  if (call.args.dtype == DType::Float16) {
    reduce_stage<Float16Format, Float16Format>(call);
  } else {
    reduce_stage<BFloat16Format, BFloat16Words>(call);
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arcomm::host {
HWY_EXPORT(reduce_half);
void reduce_half(const ReduceCall& call) {
  HWY_DYNAMIC_DISPATCH(reduce_half)(call);
}
}  // namespace arcomm::host
#endif
