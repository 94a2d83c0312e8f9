// float16 and bfloat16 in memory, float32 in registers. Compiled once per instruction set.
#if defined(ARCOMM_KERNELS_HOST_HALF_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_HALF_FORMAT_INL_H_
#undef ARCOMM_KERNELS_HOST_HALF_FORMAT_INL_H_
#else
#define ARCOMM_KERNELS_HOST_HALF_FORMAT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A vector of 16-bit words beside a float32 vector with as many lanes.
struct WordFormat {
  using Stored = std::uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Words = hn::Rebind<std::uint16_t, D>;
  using Bits = hn::RebindToUnsigned<D>;
  using Narrow = hn::Vec<Words>;

  template <bool kNonTemporal>
  static HWY_INLINE void store(D /*d*/, Narrow v, std::uint16_t* to) {
    // Highway streams no less than 16 bytes, so words beside a 128-bit vector are stored as usual.
    if constexpr (kNonTemporal && hn::MaxLanes(Words()) >= 8) {
      hn::Stream(v, Words(), to);
    } else {
      hn::StoreU(v, Words(), to);
    }
  }

 protected:
  static HWY_INLINE hn::Vec<Bits> load_bits(const std::uint16_t* from) {
    return hn::PromoteTo(Bits(), hn::LoadU(Words(), from));
  }
  // The upper halves of the lanes are zero, or differ from the sign's copies by nothing that
  // matters.
  static HWY_INLINE Narrow low_words(hn::Vec<Bits> bits) { return hn::TruncateTo(Words(), bits); }
};

struct BFloat16Format : WordFormat {
  static HWY_INLINE V load(D d, const std::uint16_t* from) {
    return hn::BitCast(d, hn::ShiftLeft<16>(load_bits(from)));
  }
  // Precondition: a NaN is the canonical one (which this leaves as it is).
  static HWY_INLINE Narrow narrow(D /*d*/, V v) {
    const Bits d;
    const auto bits = hn::BitCast(d, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff)));
    return low_words(hn::ShiftRight<16>(rounded));
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
// F16C rounds as the environment says: to nearest even, which nothing here changes.
struct Float16Format : WordFormat {
  using Halves = hn::Rebind<hwy::float16_t, D>;

  static HWY_INLINE V load(D d, const std::uint16_t* from) {
    return hn::PromoteTo(d, hn::BitCast(Halves(), hn::LoadU(Words(), from)));
  }
  static HWY_INLINE Narrow narrow(D /*d*/, V v) {
    return hn::BitCast(Words(), hn::DemoteTo(Halves(), v));
  }
};
#else
// The same by integer arithmetic; the comments of kernels/host/element.h give the limits.
class Float16Format : public WordFormat {
 private:
  // Lanes stay below 2^31, where signed comparison (which every target has) is the unsigned one.
  static HWY_INLINE auto less(hn::Vec<Bits> bits, std::uint32_t limit) {
    const hn::RebindToSigned<D> di;
    return hn::RebindMask(
        Bits(), hn::Lt(hn::BitCast(di, bits), hn::Set(di, static_cast<std::int32_t>(limit))));
  }
  template <class M>
  static HWY_INLINE hn::Vec<Bits> select(M mask, hn::Vec<Bits> yes, hn::Vec<Bits> no) {
    return hn::IfThenElse(mask, yes, no);
  }

 public:
  static HWY_INLINE V load(D d, const std::uint16_t* from) {
    const Bits db;
    const auto half = load_bits(from);
    const auto magnitude = hn::And(half, hn::Set(db, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(db, (127 - 15) << 23));
    const auto infinite = hn::Or(shifted, hn::Set(db, 0x7f800000));  // or NaN
    const auto subnormal =
        hn::BitCast(db, hn::Sub(hn::BitCast(d, hn::Add(shifted, hn::Set(db, 113 << 23))),
                                hn::BitCast(d, hn::Set(db, 113 << 23))));
    const auto finite = select(less(magnitude, 0x0400), subnormal, normal);
    return hn::BitCast(d, hn::Or(sign, select(less(magnitude, 0x7c00), finite, infinite)));
  }
  // Precondition: a NaN is the canonical one.
  static HWY_INLINE Narrow narrow(D d, V v) {
    const Bits db;
    const auto bits = hn::BitCast(db, v);
    const auto magnitude = hn::And(bits, hn::Set(db, 0x7fffffff));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(db, 1));
    const auto normal = hn::ShiftRight<13>(
        hn::Add(hn::Sub(magnitude, hn::Set(db, ((127 - 15) << 23) - 0xfff)), odd));
    // Adding 0.5 leaves the subnormal's mantissa in the low bits, rounded by the addition itself.
    const auto half = hn::Set(d, 0.5F);
    const auto subnormal =
        hn::Sub(hn::BitCast(db, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(db, half));
    const auto nan = hn::Set(db, 0x7e00), infinite = hn::Set(db, 0x7c00);
    const auto finite = select(less(magnitude, 113 << 23), subnormal, normal);
    const auto special = select(less(magnitude, 0x7f800001), infinite, nan);
    return low_words(hn::Or(sign, select(less(magnitude, 0x47800000), finite, special)));
  }
};
#endif

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
