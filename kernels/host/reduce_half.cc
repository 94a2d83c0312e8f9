#include "kernels/host/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_half.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/host/float_ops-inl.h"
#include "kernels/host/half_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {

void reduce_half(const ReduceCall& call) {
  if (call.args.dtype == DType::Float16) {
    reduce_floats<Float16Format>(call);
  } else {
    reduce_floats<BFloat16Format>(call);
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
