#include "kernels/host/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_integer.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/host/integer_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {

void reduce_integer(const ReduceCall& call) {
  reduce_integers(call);
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arcomm::host {
HWY_EXPORT(reduce_integer);
void reduce_integer(const ReduceCall& call) {
  HWY_DYNAMIC_DISPATCH(reduce_integer)(call);
}
}  // namespace arcomm::host
#endif
