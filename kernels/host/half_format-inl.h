// float16 and bfloat16 in memory, float32 in registers. Compiled once per instruction set.
#if defined(ARCOMM_KERNELS_HOST_HALF_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_HALF_FORMAT_INL_H_
#undef ARCOMM_KERNELS_HOST_HALF_FORMAT_INL_H_
#else
#define ARCOMM_KERNELS_HOST_HALF_FORMAT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/host/outputs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four runs of 16-bit words, each beside a float32 vector with as many lanes. Derived says how one
// run is widened and narrowed.
template <class Derived>
struct WordFormat {
  using Stored = std::uint16_t;
  static constexpr bool kTakesSome = false;  // no instruction masks words
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Bits = hn::RebindToUnsigned<D>;
  using Words = hn::Rebind<std::uint16_t, D>;

  template <std::size_t kPart>
  static HWY_INLINE V load(D d, const std::uint16_t* block) {
    return Derived::widen(d, hn::LoadU(Words(), block + kPart * hn::Lanes(d)));
  }
  template <bool kNonTemporal>
  static HWY_INLINE void store_all(D d, V a, V b, V c, V e, Outputs<Stored> outputs) {
    store_four<kNonTemporal>(Words(), Derived::narrow(d, a), Derived::narrow(d, b),
                             Derived::narrow(d, c), Derived::narrow(d, e), outputs);
  }
  static HWY_INLINE void store_one(D d, V v, Stored* to) {
    hn::StoreU(Derived::narrow(d, v), Words(), to);
  }
};

// To nearest, ties to even. Precondition: a NaN is the canonical one, which keeps its upper half.
template <class Bits>
HWY_INLINE hn::Vec<Bits> round_to_upper_half(Bits d, hn::Vec<Bits> bits) {
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff)));
}

struct BFloat16Words : WordFormat<BFloat16Words> {
  static HWY_INLINE V widen(D d, hn::Vec<Words> words) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(Bits(), words)));
  }
  static HWY_INLINE hn::Vec<Words> narrow(D /*d*/, V v) {
    const auto rounded = round_to_upper_half(Bits(), hn::BitCast(Bits(), v));
    return hn::TruncateTo(Words(), hn::ShiftRight<16>(rounded));
  }
};

#if HWY_TARGET != HWY_SCALAR && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
// A register of words is taken as 32-bit lanes, each with an even word in its lower and an odd one
// in its upper half: widening is a shift or a mask, and nothing has to cross lanes.
struct BFloat16Format {
  using Stored = std::uint16_t;
  static constexpr bool kTakesSome = false;  // no instruction masks words
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Bits = hn::RebindToUnsigned<D>;
  using Words = hn::Repartition<std::uint16_t, D>;

  // Parts 0 and 1 are the even and odd words of the first register, 2 and 3 those of the second.
  template <std::size_t kPart>
  static HWY_INLINE V load(D d, const std::uint16_t* block) {
    const auto both =
        hn::BitCast(Bits(), hn::LoadU(Words(), block + kPart / 2 * hn::Lanes(Words())));
    return hn::BitCast(d, kPart % 2 == 0 ? hn::ShiftLeft<16>(both) : upper(both));
  }
  template <bool kNonTemporal>
  static HWY_INLINE void store_all(D /*d*/, V a, V b, V c, V e, Outputs<Stored> outputs) {
    const auto first = pair(a, b), second = pair(c, e);
    for (std::uint32_t r = 0; r < outputs.count; ++r) {
      store<kNonTemporal>(Words(), first, outputs[r]);
      store<kNonTemporal>(Words(), second, outputs[r] + hn::Lanes(Words()));
    }
  }

 private:
  static HWY_INLINE hn::Vec<Bits> upper(hn::Vec<Bits> bits) {
    return hn::And(bits, hn::Set(Bits(), 0xffff0000U));
  }
  static HWY_INLINE hn::Vec<Words> pair(V even, V odd) {
    const Bits d;
    const auto low = hn::ShiftRight<16>(round_to_upper_half(d, hn::BitCast(d, even)));
    return hn::BitCast(Words(), hn::Or(low, upper(round_to_upper_half(d, hn::BitCast(d, odd)))));
  }
};
#else
using BFloat16Format = BFloat16Words;
#endif

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
// F16C rounds as the environment says: to nearest even, which nothing here changes.
struct Float16Format : WordFormat<Float16Format> {
  using Halves = hn::Rebind<hwy::float16_t, D>;

  static HWY_INLINE V widen(D d, hn::Vec<Words> words) {
    return hn::PromoteTo(d, hn::BitCast(Halves(), words));
  }
  static HWY_INLINE hn::Vec<Words> narrow(D /*d*/, V v) {
    return hn::BitCast(Words(), hn::DemoteTo(Halves(), v));
  }
};
#else
// The same by integer arithmetic; the comments of kernels/host/element.h give the limits.
class Float16Format : public WordFormat<Float16Format> {
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
  static HWY_INLINE V widen(D d, hn::Vec<Words> words) {
    const Bits db;
    const auto half = hn::PromoteTo(db, words);
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
  static HWY_INLINE hn::Vec<Words> narrow(D d, V v) {
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
    return hn::TruncateTo(Words(),
                          hn::Or(sign, select(less(magnitude, 0x47800000), finite, special)));
  }
};
#endif

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
