// Elements that are combined in the type they have in memory. Compiled once per instruction set.
#if defined(ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#undef ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#else
#define ARCOMM_KERNELS_HOST_PLAIN_FORMAT_INL_H_
#endif

#include <algorithm>
#include <cstddef>

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

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  // Where lanes that are masked out are not touched, the first `count` elements of a block go
  // straight to registers and back: through a copy a sum of 8 bytes takes 80 ns, and so 20.
  static constexpr bool kTakesSome = sizeof(T) >= 4;
  template <std::size_t kPart>
  static HWY_INLINE V load_some(D d, const T* block, std::size_t count) {
    return hn::MaskedLoad(some<kPart>(d, count), d, block + kPart * hn::Lanes(d));
  }
  template <std::size_t kPart>
  static HWY_INLINE void store_some(D d, V v, T* block, std::size_t count) {
    hn::BlendedStore(v, some<kPart>(d, count), d, block + kPart * hn::Lanes(d));
  }

 private:
  template <std::size_t kPart>
  static HWY_INLINE hn::Mask<D> some(D d, std::size_t count) {
    const std::size_t before = kPart * hn::Lanes(d);
    return hn::FirstN(d, count > before ? std::min(count - before, hn::Lanes(d)) : 0);
  }
#else
  static constexpr bool kTakesSome = false;
#endif
};

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
