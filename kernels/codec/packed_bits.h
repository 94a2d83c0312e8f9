// How codes lie in memory (README.md), four neighbouring ones at a time: to and from a word that
// has a byte for each. The lower four bits of codes are two in a byte, the upper two bits of those
// that have six are four in a byte. Pure, so that every code is tried on the CPU
// (tests/unit/kernels).
#pragma once

#include <cstdint>

namespace arcomm {

// The lower 16 bits: the codes' lower four bits.
constexpr std::uint32_t pack_low(std::uint32_t codes) {
  const std::uint32_t low = codes & 0x0f0f'0f0fU;
  const std::uint32_t pairs = low | low >> 4;
  return (pairs & 0xffU) | (pairs >> 8 & 0xff00U);
}
// The lower 8 bits: the two above those.
constexpr std::uint32_t pack_high(std::uint32_t codes) {
  const std::uint32_t high = codes >> 4 & 0x0303'0303U;
  const std::uint32_t pairs = high | high >> 6;
  return (pairs | pairs >> 12) & 0xffU;
}
// Nothing but those 16 bits may be set, and those 8.
constexpr std::uint32_t unpack_low(std::uint32_t packed) {
  const std::uint32_t pairs = (packed | packed << 8) & 0x00ff'00ffU;
  return (pairs | pairs << 4) & 0x0f0f'0f0fU;
}
constexpr std::uint32_t unpack_high(std::uint32_t packed) {
  const std::uint32_t pairs = (packed | packed << 12) & 0x000f'000fU;
  return ((pairs | pairs << 6) & 0x0303'0303U) << 4;
}

}  // namespace arcomm
