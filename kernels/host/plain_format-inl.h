// Elements that are combined in the type they have in memory. Compiled once per instruction set.
#if defined(ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#undef ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#else
#define ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
struct PlainFormat {
  using Stored = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  static HWY_INLINE V load(D d, const T* from) { return hn::LoadU(d, from); }
  static HWY_INLINE V narrow(D /*d*/, V v) { return v; }
  template <bool kNonTemporal>
  static HWY_INLINE void store(D d, V v, T* to) {
    if constexpr (kNonTemporal) {
      hn::Stream(v, d, to);
    } else {
      hn::StoreU(v, d, to);
    }
  }
};

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
