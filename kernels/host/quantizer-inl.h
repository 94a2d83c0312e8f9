// Blocks of 32 floats and their encoded bytes, and what those decode to without being made: the
// format is in kernels/codec/README.md. Compiled once per instruction set.
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
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/codec/format.h"
#include "kernels/host/packed_codes-inl.h"

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
  using Bytes = hn::Rebind<std::uint8_t, D>;
  using V = hn::Vec<D>;
  using Integers = hn::Vec<Signed>;

 public:
  HWY_INLINE explicit Quantizer(const CodecFormat& format)
      : lowest_(-static_cast<float>(format.levels)),
        highest_(static_cast<float>(format.levels) - 1),
        steps_(static_cast<float>(format.levels)),
        bits_(format.bits),
        levels_(static_cast<std::int32_t>(format.levels)),
        flipped_(format.bits == 8 && !kFp8 ? 0x80 : 0),
        most_scale_(format.most_scale()) {}

  HWY_INLINE std::uint32_t block_bytes() const {
    return kCodecBlock * bits_ / 8 + kCodecScaleBytes;
  }

  // `block` is aligned as vectors are, `bytes` need not be.
  HWY_INLINE void encode(const float* HWY_RESTRICT block, std::byte* HWY_RESTRICT bytes) const {
    const D d;
    HWY_ALIGN std::uint8_t codes[kBlockRoom];
    const Scale scale = scale_of(block);
    const bool has_codes = scale.stored == scale.stored && scale.stored != 0;
    const V inverse = hn::Set(d, scale.inverse);
    for (std::size_t i = 0; i < kCodecBlock; i += hn::Lanes(d)) {
      const V steps = has_codes ? hn::Mul(hn::Load(d, block + i), inverse) : hn::Zero(d);
      const auto code =
          kFp8 ? bits_of_e4m3(to_e4m3(steps, scale.signs)) : bits_of_integer(to_integer(steps));
      hn::StoreU(hn::DemoteTo(Bytes(), code), Bytes(), codes + i);
    }
    pack_codes(bits_, codes, bytes);
    const auto stored =
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scale.stored) >> 16);
    std::memcpy(bytes + kCodecBlock * bits_ / 8, &stored, sizeof(stored));
  }

  // Replaces `sum` by what encoded bytes stand for, or adds it. Any bytes will do.
  HWY_INLINE void decode_bytes(const std::byte* HWY_RESTRICT bytes, float* HWY_RESTRICT sum,
                               bool is_first) const {
    const D d;
    HWY_ALIGN std::uint8_t codes[kBlockRoom];
    unpack_codes(bits_, bytes, codes);
    std::uint16_t scale = 0;
    std::memcpy(&scale, bytes + kCodecBlock * bits_ / 8, sizeof(scale));
    const V stored = hn::Set(d, std::bit_cast<float>(std::uint32_t{scale} << 16));
    for (std::size_t i = 0; i < kCodecBlock; i += hn::Lanes(d)) {
      const auto code = hn::PromoteTo(Signed(), hn::LoadU(Bytes(), codes + i));
      const V decoded = hn::Mul(kFp8 ? value_of_e4m3(code) : value_of_integer(code), stored);
      hn::Store(is_first ? decoded : hn::Add(hn::Load(d, sum + i), decoded), d, sum + i);
    }
    std::fill(sum + kCodecBlock, sum + kBlockRoom, 0.0F);
  }

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

  // A code as it is packed, from what it stands for, and back.
  HWY_INLINE Integers bits_of_integer(V code) const {
    const Signed di;
    return hn::Xor(hn::Add(hn::ConvertTo(di, code), hn::Set(di, levels_)), hn::Set(di, flipped_));
  }
  HWY_INLINE V value_of_integer(Integers code) const {
    const Signed di;
    return hn::ConvertTo(D(), hn::Sub(hn::Xor(code, hn::Set(di, flipped_)), hn::Set(di, levels_)));
  }
  // e4m3 has seven less bits of exponent than a float, whose exponents are 120 more; below 2^-6
  // it counts steps of 2^-9.
  static constexpr std::int32_t kExponents = 120, kLeastNormal = 8, kNanCode = 0x7f;
  static HWY_INLINE Integers bits_of_e4m3(V value) {
    const D d;
    const Signed di;
    const auto bits = hn::BitCast(di, value);
    const auto magnitude = hn::And(bits, hn::Set(di, kMagnitude));
    const auto normal = hn::Sub(hn::ShiftRight<20>(magnitude), hn::Set(di, kExponents << 3));
    const auto steps = hn::ConvertTo(di, hn::Mul(hn::Abs(value), hn::Set(d, 0x1p9F)));
    const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80));
    return hn::Or(hn::IfThenElse(hn::Lt(normal, hn::Set(di, kLeastNormal)), steps, normal), sign);
  }
  static HWY_INLINE V value_of_e4m3(Integers code) {
    const D d;
    const Signed di;
    const auto magnitude = hn::And(code, hn::Set(di, 0x7f));
    const auto normal = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(di, kExponents << 23));
    const auto below = hn::BitCast(di, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-9F)));
    const auto nan = hn::Set(di, std::bit_cast<std::int32_t>(0x7fc00000U));
    auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, kLeastNormal)), below, normal);
    bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(di, kNanCode)), nan, bits);
    return hn::BitCast(d, hn::Or(bits, hn::ShiftLeft<24>(hn::And(code, hn::Set(di, 0x80)))));
  }

  float lowest_, highest_, steps_;
  std::uint32_t bits_;
  std::int32_t levels_;   // what a code is stored above
  std::int32_t flipped_;  // of 8 bits it is a signed byte instead: its uppermost bit
  std::uint32_t most_scale_;
};

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
