#include "kernels/host/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_half.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/host/blocks-inl.h"
#include "kernels/host/float_ops-inl.h"
#include "kernels/host/half_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {

template <typename Format>
void reduce_format(const ReduceCall& call) {
  switch (call.args.op) {
    case ReduceOp::Sum:
      return reduce_few_ranks<Format, FloatSum>(call);
    case ReduceOp::Prod:
      return reduce_any_ranks<Format, FloatProd>(call);
    case ReduceOp::Min:
      return reduce_any_ranks<Format, FloatMin>(call);
    case ReduceOp::Max:
      return reduce_any_ranks<Format, FloatMax>(call);
    case ReduceOp::Avg:
      return reduce_any_ranks<Format, FloatAvg>(call);
  }
}

void reduce_half(const ReduceCall& call) {
  if (call.args.dtype == DType::Float16) {
    reduce_format<Float16Format>(call);
  } else {
    reduce_format<BFloat16Format>(call);
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
