// Elements that are combined in the type they have in memory. Compiled once per instruction set.
#if defined(ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#undef ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#else
#define ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/host/outputs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
struct PlainFormat {
  using Stored = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  template <std::size_t kPart>
  static HWY_INLINE V load(D d, const T* block) {
    return hn::LoadU(d, block + kPart * hn::Lanes(d));
  }
  template <bool kNonTemporal>
  static HWY_INLINE void store_all(D d, V a, V b, V c, V e, Outputs<T> outputs) {
    store_four<kNonTemporal>(d, a, b, c, e, outputs);
  }
  static HWY_INLINE void store_one(D d, V v, T* to) { hn::StoreU(v, d, to); }
};

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
