// What an encoded block of 32 floats decodes to, without making its bytes: the format is in
// kernels/codec/README.md. Compiled once per instruction set.
#if defined(ARCOMM_KERNELS_HOST_QUANTIZER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_QUANTIZER_INL_H_
#undef ARCOMM_KERNELS_HOST_QUANTIZER_INL_H_
#else
#define ARCOMM_KERNELS_HOST_QUANTIZER_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/codec/format.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Blocks have room for a whole vector where those are longer; what lies behind the 32 is zero.
inline constexpr std::size_t kBlockRoom =
    std::max<std::size_t>(kCodecBlock, hn::MaxLanes(hn::ScalableTag<float>()));

template <bool kFp8>
class Quantizer {
  using D = hn::ScalableTag<float>;
  using Signed = hn::RebindToSigned<D>;
  using V = hn::Vec<D>;

 public:
  HWY_INLINE explicit Quantizer(const CodecFormat& format)
      : lowest_(-static_cast<float>(format.levels)),
        highest_(static_cast<float>(format.levels) - 1),
        steps_(static_cast<float>(format.levels)),
        most_scale_(format.most_scale()) {}

  // Replaces `sum` by what `block` decodes to, or adds it. Both are aligned as vectors are.
  HWY_INLINE void decode(const float* HWY_RESTRICT block, float* HWY_RESTRICT sum,
                         bool is_first) const {
    const D d;
    const Scale scale = scale_of(block);
    const V stored = hn::Set(d, scale.stored), inverse = hn::Set(d, scale.inverse);
    for (std::size_t i = 0; i < kCodecBlock; i += hn::Lanes(d)) {
      const V steps = hn::Mul(hn::Load(d, block + i), inverse);
      const V code = kFp8 ? to_e4m3(steps, scale.signs) : to_integer(steps);
      const V decoded = hn::Mul(code, stored);
      hn::Store(is_first ? decoded : hn::Add(hn::Load(d, sum + i), decoded), d, sum + i);
    }
  }

 private:
  static constexpr std::int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

  struct Scale {
    float stored, inverse;
    std::int32_t signs = std::numeric_limits<std::int32_t>::min();  // what of a sign codes keep
  };

  HWY_INLINE Scale scale_of(const float* HWY_RESTRICT block) const {
    const std::int32_t greatest = greatest_magnitude(block);
    if (greatest >= kInfinity) {
      constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
      return {kNan, kNan};
    }
    const auto a = std::bit_cast<float>(greatest);
    if (a < kLeastCodedMagnitude) return {0, 0, 0};
    const float exact = kFp8 ? a / 448.0F : -first_of(block, greatest) / steps_;
    // To the upper half of a float, to nearest even.
    auto bits = std::bit_cast<std::uint32_t>(exact);
    bits = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    bits = (bits & 0x8000U) | std::min(bits & 0x7fffU, most_scale_);
    const auto stored = std::bit_cast<float>(bits << 16);
    return {stored, 1.0F / stored};
  }

  // Bits of magnitudes compare as the magnitudes do, and those of NaNs and infinities are above.
  static HWY_INLINE std::int32_t greatest_magnitude(const float* HWY_RESTRICT block) {
    const Signed di;
    auto greatest = hn::Zero(di);
    for (std::size_t i = 0; i < kCodecBlock; i += hn::Lanes(di)) {
      greatest = hn::Max(greatest, magnitudes(block + i));
    }
    return hn::GetLane(hn::MaxOfLanes(di, greatest));
  }
  static HWY_INLINE float first_of(const float* HWY_RESTRICT block, std::int32_t magnitude) {
    const Signed di;
    const auto wanted = hn::Set(di, magnitude);
    std::size_t i = 0;
    for (; i + hn::Lanes(di) < kCodecBlock; i += hn::Lanes(di)) {
      const auto equal = hn::Eq(magnitudes(block + i), wanted);
      if (!hn::AllFalse(di, equal)) break;
    }
    return block[i + static_cast<std::size_t>(
                         hn::FindFirstTrue(di, hn::Eq(magnitudes(block + i), wanted)))];
  }
  static HWY_INLINE hn::Vec<Signed> magnitudes(const float* from) {
    const Signed di;
    return hn::And(hn::BitCast(di, hn::Load(D(), from)), hn::Set(di, kMagnitude));
  }

  // Adding a number whose last bit is worth 1 rounds to an integer; 0 is always +0 behind it.
  HWY_INLINE V to_integer(V steps) const {
    const D d;
    const V magic = hn::Set(d, 0x1.8p23F);
    const V rounded = hn::Sub(hn::Add(steps, magic), magic);
    return hn::Min(hn::Max(rounded, hn::Set(d, lowest_)), hn::Set(d, highest_));
  }
  // The same with a number whose last bit is worth an eighth of the value's own power of two, the
  // step of e4m3; below 2^-6 steps are of 2^-9.
  static HWY_INLINE V to_e4m3(V steps, std::int32_t signs) {
    const D d;
    const Signed di;
    const auto bits = hn::BitCast(di, steps);
    const auto sign = hn::And(bits, hn::Set(di, signs));
    const V magnitude = hn::Min(hn::Abs(steps), hn::Set(d, 448.0F));
    const auto power = hn::Max(hn::And(hn::BitCast(di, magnitude), hn::Set(di, kInfinity)),
                               hn::Set(di, (127 - 6) << 23));
    const V magic = hn::BitCast(d, hn::Add(power, hn::Set(di, 20 << 23)));
    const V rounded = hn::Sub(hn::Add(magnitude, magic), magic);
    return hn::BitCast(d, hn::Or(hn::BitCast(di, rounded), sign));
  }

  float lowest_, highest_, steps_;
  std::uint32_t most_scale_;
};

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
