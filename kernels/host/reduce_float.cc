#include "kernels/host/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_float.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/host/float_ops-inl.h"
#include "kernels/host/plain_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {

void reduce_float(const ReduceCall& call) {
  if (call.args.dtype == DType::Float32) {
    reduce_floats<PlainFormat<float>>(call);
  } else {
    reduce_floats<PlainFormat<double>>(call);
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arcomm::host {
HWY_EXPORT(reduce_float);
void reduce_float(const ReduceCall& call) {
  HWY_DYNAMIC_DISPATCH(reduce_float)(call);
}
}  // namespace arcomm::host
#endif
