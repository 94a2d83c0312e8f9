// The 32 codes of a block, a byte each, to and from the bits that they travel in
// (kernels/codec/README.md). Eight codes at a time, in a register. Bytes are little-endian's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "proto/codec.h"

namespace arcomm::host {

static_assert(std::endian::native == std::endian::little);

inline constexpr std::size_t kCodesAtOnce = sizeof(std::uint64_t);
inline constexpr std::size_t kLowPlaneBytes = kCodecBlock / 2;  // of 6 bits: before the upper two

inline std::uint64_t load_codes(const std::uint8_t* codes) {
  std::uint64_t eight = 0;
  std::memcpy(&eight, codes, sizeof(eight));
  return eight;
}

// The lower four bits of each, then the lower two: what lies between them is squeezed out.
inline std::uint32_t pack_nibbles(std::uint64_t codes) {
  codes &= 0x0f0f0f0f0f0f0f0fU;
  codes = (codes | codes >> 4) & 0x00ff00ff00ff00ffU;
  codes = (codes | codes >> 8) & 0x0000ffff0000ffffU;
  return static_cast<std::uint32_t>(codes | codes >> 16);
}
inline std::uint16_t pack_pairs(std::uint64_t codes) {
  codes &= 0x0303030303030303U;
  codes = (codes | codes >> 6) & 0x000f000f000f000fU;
  codes = (codes | codes >> 12) & 0x000000ff000000ffU;
  return static_cast<std::uint16_t>(codes | codes >> 24);
}
inline std::uint64_t unpack_nibbles(std::uint32_t packed) {
  std::uint64_t codes = packed;
  codes = (codes | codes << 16) & 0x0000ffff0000ffffU;
  codes = (codes | codes << 8) & 0x00ff00ff00ff00ffU;
  return (codes | codes << 4) & 0x0f0f0f0f0f0f0f0fU;
}
inline std::uint64_t unpack_pairs(std::uint16_t packed) {
  std::uint64_t codes = packed;
  codes = (codes | codes << 24) & 0x000000ff000000ffU;
  codes = (codes | codes << 12) & 0x000f000f000f000fU;
  return (codes | codes << 6) & 0x0303030303030303U;
}

// bits: 4, 6 or 8. `codes` has kCodecBlock of them, `block` room for kCodecBlock * bits / 8 bytes.
inline void pack_codes(std::uint32_t bits, const std::uint8_t* codes, std::byte* block) {
  if (bits == 8) {
    std::memcpy(block, codes, kCodecBlock);
    return;
  }
  for (std::size_t i = 0; i < kCodecBlock; i += kCodesAtOnce) {
    const std::uint64_t eight = load_codes(codes + i);
    const std::uint32_t low = pack_nibbles(eight);
    std::memcpy(block + i / 2, &low, sizeof(low));
    if (bits == 4) continue;
    const std::uint16_t high = pack_pairs(eight >> 4);
    std::memcpy(block + kLowPlaneBytes + i / 4, &high, sizeof(high));
  }
}

inline void unpack_codes(std::uint32_t bits, const std::byte* block, std::uint8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, block, kCodecBlock);
    return;
  }
  for (std::size_t i = 0; i < kCodecBlock; i += kCodesAtOnce) {
    std::uint32_t low = 0;
    std::memcpy(&low, block + i / 2, sizeof(low));
    std::uint64_t eight = unpack_nibbles(low);
    if (bits == 6) {
      std::uint16_t high = 0;
      std::memcpy(&high, block + kLowPlaneBytes + i / 4, sizeof(high));
      eight |= unpack_pairs(high) << 4;
    }
    std::memcpy(codes + i, &eight, sizeof(eight));
  }
}

}  // namespace arcomm::host
