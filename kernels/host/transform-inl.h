// The Walsh-Hadamard transform of a block of 32 floats, as rotated codecs have it. Compiled once
// per instruction set.
#if defined(ARCOMM_KERNELS_HOST_TRANSFORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_TRANSFORM_INL_H_
#undef ARCOMM_KERNELS_HOST_TRANSFORM_INL_H_
#else
#define ARCOMM_KERNELS_HOST_TRANSFORM_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/codec/format.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One stage: every value with the one that lies a stride behind it. All stages move whole vectors,
// since reading what was just written in narrower ones is slow.
template <std::size_t kStride>
HWY_INLINE void butterflies(float* HWY_RESTRICT block) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  if constexpr (kStride < hn::MaxLanes(d)) {
    if (kStride < lanes) {  // both lie in one vector: each lane adds its partner, some negated
      const hn::RebindToSigned<decltype(d)> di;
      const auto lane = hn::Iota(di, 0), stride = hn::Set(di, static_cast<std::int32_t>(kStride));
      const auto partners = hn::IndicesFromVec(d, hn::Xor(lane, stride));
      const auto is_behind = hn::Eq(hn::And(lane, stride), stride);
      const auto signs = hn::BitCast(
          d, hn::IfThenElseZero(is_behind, hn::Set(di, std::numeric_limits<std::int32_t>::min())));
      for (std::size_t i = 0; i < kCodecBlock; i += lanes) {
        const auto values = hn::Load(d, block + i);
        hn::Store(hn::Add(hn::TableLookupLanes(values, partners), hn::Xor(values, signs)), d,
                  block + i);
      }
      return;
    }
  }
  for (std::size_t group = 0; group < kCodecBlock; group += 2 * kStride) {
    for (std::size_t i = group; i < group + kStride; i += lanes) {
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
