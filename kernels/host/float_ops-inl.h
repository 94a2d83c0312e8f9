// Operations on floating point lanes, compiled once per instruction set. See launch.h for what they
// promise.
#if defined(ARCOMM_KERNELS_HOST_FLOAT_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_FLOAT_OPS_INL_H_
#undef ARCOMM_KERNELS_HOST_FLOAT_OPS_INL_H_
#else
#define ARCOMM_KERNELS_HOST_FLOAT_OPS_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/host/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Which NaN an instruction makes differs between processors, and even with the order of its
// operands; the kernels make the canonical one.
template <class D, class V>
HWY_INLINE V canonical_nan(D d, V v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()),
                        v);
}

struct FloatSum {
  template <class D, class V>
  static HWY_INLINE V combine(D /*d*/, V so_far, V next) {
    return hn::Add(so_far, next);
  }
  template <class D, class V>
  static HWY_INLINE V finish(D d, V v, std::uint32_t /*divisor*/) {
    return canonical_nan(d, v);
  }
};

struct FloatProd : FloatSum {
  template <class D, class V>
  static HWY_INLINE V combine(D /*d*/, V so_far, V next) {
    return hn::Mul(so_far, next);
  }
};

struct FloatAvg : FloatSum {
  template <class D, class V>
  static HWY_INLINE V finish(D d, V v, std::uint32_t divisor) {
    return canonical_nan(d, hn::Div(v, hn::Set(d, static_cast<hn::TFromD<D>>(divisor))));
  }
};

// Highway's Min is not used, because what it does with a NaN, or with -0 and +0, depends on the
// processor.
struct FloatMin : FloatSum {
  template <class D, class V>
  static HWY_INLINE V combine(D /*d*/, V so_far, V next) {
    return hn::IfThenElse(hn::Or(hn::Lt(next, so_far), hn::IsNaN(next)), next, so_far);
  }
};

struct FloatMax : FloatSum {
  template <class D, class V>
  static HWY_INLINE V combine(D /*d*/, V so_far, V next) {
    return hn::IfThenElse(hn::Or(hn::Gt(next, so_far), hn::IsNaN(next)), next, so_far);
  }
};

// Any operation on elements that Format turns into floating point lanes.
template <typename Format>
void reduce_floats(const ReduceCall& call) {
  switch (call.op()) {
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

// The same where inputs and outputs are of different types.
template <typename In, typename Out>
void reduce_floats_between(const ReduceCall& call) {
  switch (call.op()) {
    case ReduceOp::Sum:
      return reduce_between<In, Out, FloatSum>(call);
    case ReduceOp::Prod:
      return reduce_between<In, Out, FloatProd>(call);
    case ReduceOp::Min:
      return reduce_between<In, Out, FloatMin>(call);
    case ReduceOp::Max:
      return reduce_between<In, Out, FloatMax>(call);
    case ReduceOp::Avg:
      return reduce_between<In, Out, FloatAvg>(call);
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
