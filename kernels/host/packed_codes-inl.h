// The 32 codes of a block, a byte each, to and from the bits that they travel in
// (kernels/codec/README.md). Compiled once per instruction set: 16 bytes at a time, in a register,
// or, where a register has one lane, 8 in a word. Bytes are little-endian's.
#if defined(ARCOMM_KERNELS_HOST_PACKED_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_PACKED_CODES_INL_H_
#undef ARCOMM_KERNELS_HOST_PACKED_CODES_INL_H_
#else
#define ARCOMM_KERNELS_HOST_PACKED_CODES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "proto/codec.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little);

// `codes` are bytes in memory, `block` is what travels.
#if HWY_TARGET == HWY_SCALAR

struct PackedCodes {
  static constexpr std::size_t kAtOnce = 8;

  static HWY_INLINE std::uint64_t load(const std::uint8_t* codes) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, codes, sizeof(eight));
    return eight;
  }
  // The lower four bits of each, and the two above them: what lies between is squeezed out.
  static HWY_INLINE void pack_low(const std::uint8_t* codes, std::byte* block) {
    std::uint64_t eight = load(codes) & 0x0f0f0f0f0f0f0f0fU;
    eight = (eight | eight >> 4) & 0x00ff00ff00ff00ffU;
    eight = (eight | eight >> 8) & 0x0000ffff0000ffffU;
    const auto packed = static_cast<std::uint32_t>(eight | eight >> 16);
    std::memcpy(block, &packed, sizeof(packed));
  }
  static HWY_INLINE void pack_high(const std::uint8_t* codes, std::byte* block) {
    std::uint64_t eight = load(codes) >> 4 & 0x0303030303030303U;
    eight = (eight | eight >> 6) & 0x000f000f000f000fU;
    eight = (eight | eight >> 12) & 0x000000ff000000ffU;
    const auto packed = static_cast<std::uint16_t>(eight | eight >> 24);
    std::memcpy(block, &packed, sizeof(packed));
  }
  static HWY_INLINE std::uint64_t unpack_low(const std::byte* block) {
    std::uint32_t packed = 0;
    std::memcpy(&packed, block, sizeof(packed));
    std::uint64_t eight = packed;
    eight = (eight | eight << 16) & 0x0000ffff0000ffffU;
    eight = (eight | eight << 8) & 0x00ff00ff00ff00ffU;
    return (eight | eight << 4) & 0x0f0f0f0f0f0f0f0fU;
  }
  static HWY_INLINE std::uint64_t unpack_high(const std::byte* block) {
    std::uint16_t packed = 0;
    std::memcpy(&packed, block, sizeof(packed));
    std::uint64_t eight = packed;
    eight = (eight | eight << 24) & 0x000000ff000000ffU;
    eight = (eight | eight << 12) & 0x000f000f000f000fU;
    return ((eight | eight << 6) & 0x0303030303030303U) << 4;
  }
  static HWY_INLINE void unpack(const std::byte* low, const std::byte* high, std::uint8_t* codes) {
    std::uint64_t eight = unpack_low(low);
    if (high != nullptr) eight |= unpack_high(high);
    std::memcpy(codes, &eight, sizeof(eight));
  }
};

#else

struct PackedCodes {
  static constexpr std::size_t kAtOnce = kCodecBlock;
  using Bytes = hn::FixedTag<std::uint8_t, 16>;
  using Words = hn::Repartition<std::uint16_t, Bytes>;
  using Longs = hn::Repartition<std::uint32_t, Bytes>;
  using V = hn::Vec<Bytes>;

  // The lower four bits of each, two in a byte.
  static HWY_INLINE void pack_low(const std::uint8_t* codes, std::byte* block) {
    const Words d;
    const hn::Rebind<std::uint8_t, Words> half;
    for (std::size_t i = 0; i < kCodecBlock; i += 16) {
      const auto pairs = hn::BitCast(d, hn::LoadU(Bytes(), codes + i));
      const auto packed = hn::Or(hn::And(pairs, hn::Set(d, 0x0f)),
                                 hn::And(hn::ShiftRight<4>(pairs), hn::Set(d, 0xf0)));
      hn::StoreU(hn::TruncateTo(half, packed), half, to_bytes(block) + i / 2);
    }
  }
  // The two above them, four in a byte.
  static HWY_INLINE void pack_high(const std::uint8_t* codes, std::byte* block) {
    const Longs d;
    const hn::Rebind<std::uint8_t, Longs> quarter;
    for (std::size_t i = 0; i < kCodecBlock; i += 16) {
      const auto four = hn::BitCast(d, hn::LoadU(Bytes(), codes + i));
      const auto high = hn::And(hn::ShiftRight<4>(four), hn::Set(d, 0x03030303));
      const auto pairs = hn::Or(high, hn::ShiftRight<6>(high));
      const auto packed = hn::And(hn::Or(pairs, hn::ShiftRight<12>(pairs)), hn::Set(d, 0xff));
      hn::StoreU(hn::TruncateTo(quarter, packed), quarter, to_bytes(block) + i / 4);
    }
  }
  // high: null where a code has no more than four bits.
  static HWY_INLINE void unpack(const std::byte* low, const std::byte* high, std::uint8_t* codes) {
    const Bytes d;
    const V packed = hn::LoadU(d, to_bytes(low));
    const V even = hn::And(packed, hn::Set(d, 0x0f)), odd = shifted<4>(packed, 0x0f);
    V first = hn::InterleaveLower(d, even, odd), second = hn::InterleaveUpper(d, even, odd);
    if (high != nullptr) {
      std::uint64_t in_memory = 0;
      std::memcpy(&in_memory, high, sizeof(in_memory));
      const V eight = hn::BitCast(d, hn::Set(hn::Repartition<std::uint64_t, Bytes>(), in_memory));
      const V wanted = hn::Set(d, 0x30);
      const V a = hn::And(hn::BitCast(d, hn::ShiftLeft<4>(hn::BitCast(Words(), eight))), wanted);
      const V b = hn::And(hn::BitCast(d, hn::ShiftLeft<2>(hn::BitCast(Words(), eight))), wanted);
      const V c = hn::And(eight, wanted), e = shifted<2>(eight, 0x30);
      const auto ab = hn::BitCast(Words(), hn::InterleaveLower(d, a, b));
      const auto ce = hn::BitCast(Words(), hn::InterleaveLower(d, c, e));
      first = hn::Or(first, hn::BitCast(d, hn::InterleaveLower(Words(), ab, ce)));
      second = hn::Or(second, hn::BitCast(d, hn::InterleaveUpper(Words(), ab, ce)));
    }
    hn::StoreU(first, d, codes);
    hn::StoreU(second, d, codes + 16);
  }

 private:
  template <int kBits>
  static HWY_INLINE V shifted(V bytes, std::uint8_t wanted) {
    return hn::And(hn::BitCast(Bytes(), hn::ShiftRight<kBits>(hn::BitCast(Words(), bytes))),
                   hn::Set(Bytes(), wanted));
  }
  static HWY_INLINE std::uint8_t* to_bytes(std::byte* block) {
    return reinterpret_cast<std::uint8_t*>(block);
  }
  static HWY_INLINE const std::uint8_t* to_bytes(const std::byte* block) {
    return reinterpret_cast<const std::uint8_t*>(block);
  }
};

#endif

// bits: 4, 6 or 8. `codes` has kCodecBlock of them, `block` room for kCodecBlock * bits / 8 bytes:
// of 6 bits the upper two lie behind the lower four.
HWY_INLINE void pack_codes(std::uint32_t bits, const std::uint8_t* codes, std::byte* block) {
  if (bits == 8) {
    std::memcpy(block, codes, kCodecBlock);
    return;
  }
  for (std::size_t i = 0; i < kCodecBlock; i += PackedCodes::kAtOnce) {
    PackedCodes::pack_low(codes + i, block + i / 2);
    if (bits == 6) PackedCodes::pack_high(codes + i, block + kCodecBlock / 2 + i / 4);
  }
}

HWY_INLINE void unpack_codes(std::uint32_t bits, const std::byte* block, std::uint8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, block, kCodecBlock);
    return;
  }
  for (std::size_t i = 0; i < kCodecBlock; i += PackedCodes::kAtOnce) {
    PackedCodes::unpack(block + i / 2, bits == 6 ? block + kCodecBlock / 2 + i / 4 : nullptr,
                        codes + i);
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
