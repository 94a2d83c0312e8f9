// The Walsh-Hadamard transform of a block of 32 floats, as rotated codecs have it. Compiled once
// per instruction set.
#if defined(ARCOMM_KERNELS_HOST_TRANSFORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_TRANSFORM_INL_H_
#undef ARCOMM_KERNELS_HOST_TRANSFORM_INL_H_
#else
#define ARCOMM_KERNELS_HOST_TRANSFORM_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/codec/format.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One stage: every value with the one that lies a stride behind it. Vectors are no longer than a
// stride, so that nothing has to cross lanes.
template <std::size_t kStride>
HWY_INLINE void butterflies(float* HWY_RESTRICT block) {
  const hn::CappedTag<float, kStride> d;
  for (std::size_t group = 0; group < kCodecBlock; group += 2 * kStride) {
    for (std::size_t i = group; i < group + kStride; i += hn::Lanes(d)) {
      const auto a = hn::Load(d, block + i), b = hn::Load(d, block + i + kStride);
      hn::Store(hn::Add(a, b), d, block + i);
      hn::Store(hn::Sub(a, b), d, block + i + kStride);
    }
  }
}

// In place, not normalised. `block` is aligned as vectors are.
HWY_INLINE void transform(float* HWY_RESTRICT block) {
  butterflies<1>(block);
  butterflies<2>(block);
  butterflies<4>(block);
  butterflies<8>(block);
  butterflies<16>(block);
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
