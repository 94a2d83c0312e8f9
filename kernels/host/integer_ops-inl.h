// Reductions of integers: the operations, and which type a call is of. Compiled once per
// instruction set.
#if defined(ARCOMM_KERNELS_HOST_INTEGER_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_INTEGER_OPS_INL_H_
#undef ARCOMM_KERNELS_HOST_INTEGER_OPS_INL_H_
#else
#define ARCOMM_KERNELS_HOST_INTEGER_OPS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/host/blocks-inl.h"
#include "kernels/host/plain_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct IntegerSum {
  template <class D, class V>
  static HWY_INLINE V combine(D /*d*/, V so_far, V next) {
    return hn::Add(so_far, next);
  }
  template <class D, class V>
  static HWY_INLINE V finish(D /*d*/, V v, std::uint32_t /*divisor*/) {
    return v;
  }
};

// Only for unsigned lanes: products of signed ones have the same bits.
struct IntegerProd : IntegerSum {
  template <class D, class V>
  static HWY_INLINE V combine(D d, V so_far, V next) {
    using T = hn::TFromD<D>;
    if constexpr (sizeof(T) == 4) {
      return hn::Mul(so_far, next);
    } else {  // lanes for which not every instruction set multiplies
      HWY_ALIGN T a[hn::MaxLanes(D())];
      HWY_ALIGN T b[hn::MaxLanes(D())];
      hn::Store(so_far, d, a);
      hn::Store(next, d, b);
      for (std::size_t i = 0; i < hn::Lanes(d); ++i) a[i] = static_cast<T>(a[i] * b[i]);
      return hn::Load(d, a);
    }
  }
};

struct IntegerMin : IntegerSum {
  template <class D, class V>
  static HWY_INLINE V combine(D /*d*/, V so_far, V next) {
    return hn::Min(so_far, next);
  }
};

struct IntegerMax : IntegerSum {
  template <class D, class V>
  static HWY_INLINE V combine(D /*d*/, V so_far, V next) {
    return hn::Max(so_far, next);
  }
};

struct IntegerAvg : IntegerSum {
  template <class D, class V>
  static HWY_INLINE V finish(D d, V v, std::uint32_t divisor) {
    using T = hn::TFromD<D>;
    using Wide = decltype(T{} + 0);  // the divisor may leave the range of a small type
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
      lanes[i] = static_cast<T>(lanes[i] / static_cast<Wide>(divisor));  // towards zero
    }
    return hn::Load(d, lanes);
  }
};

template <typename T>
void reduce_type(const ReduceCall& call) {
  using Wrapping =
      PlainFormat<std::make_unsigned_t<T>>;  // sums and products do not depend on the sign
  switch (call.op()) {
    case ReduceOp::Sum:
      return reduce_any_ranks<Wrapping, IntegerSum>(call);
    case ReduceOp::Prod:
      return reduce_any_ranks<Wrapping, IntegerProd>(call);
    case ReduceOp::Min:
      return reduce_any_ranks<PlainFormat<T>, IntegerMin>(call);
    case ReduceOp::Max:
      return reduce_any_ranks<PlainFormat<T>, IntegerMax>(call);
    case ReduceOp::Avg:
      return reduce_any_ranks<PlainFormat<T>, IntegerAvg>(call);
  }
}

HWY_INLINE void reduce_integers(const ReduceCall& call) {
  switch (call.args.dtype) {
    case DType::Int8:
      return reduce_type<std::int8_t>(call);
    case DType::Uint8:
      return reduce_type<std::uint8_t>(call);
    case DType::Int32:
      return reduce_type<std::int32_t>(call);
    case DType::Uint32:
      return reduce_type<std::uint32_t>(call);
    case DType::Int64:
      return reduce_type<std::int64_t>(call);
    case DType::Uint64:
      return reduce_type<std::uint64_t>(call);
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float32:
    case DType::Float64:
      return;  // of the other families
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
