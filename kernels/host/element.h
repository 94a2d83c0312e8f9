// The 16-bit floating point formats, one element at a time, from their definitions. Pure; any
// thread. float16 is IEEE 754 binary16; bfloat16 is the upper half of a float32. Both conversions
// to 16 bits round to nearest, ties to even, overflow to infinity, keep subnormals, and map every
// NaN to the canonical one.
#pragma once

#include <bit>
#include <cstdint>

namespace arcomm {

inline constexpr std::uint16_t kFloat16Nan = 0x7e00;
inline constexpr std::uint16_t kBFloat16Nan = 0x7fc0;

constexpr float float_from_float16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa units of 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
}

constexpr std::uint16_t float16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return kFloat16Nan;
  if (magnitude >= 0x477ff000U) return sign | 0x7c00U;  // 65520 and above round to infinity
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent < 127 - 25) return sign;  // below 2^-25, half of the smallest subnormal
  const std::uint32_t full = (magnitude & 0x7fffffU) | 0x800000U;
  // Bits of `full` to drop: 13 in the normal range, more for results that are subnormal.
  const bool subnormal = exponent < 127 - 14;
  const std::uint32_t drop = subnormal ? 13 + (127 - 14 - exponent) : 13;
  const std::uint32_t kept =
      subnormal ? full >> drop : ((exponent - 112) << 10) + ((full >> 13) & 0x3ffU);
  const std::uint32_t rest = full & ((1U << drop) - 1);
  const std::uint32_t tie = 1U << (drop - 1);
  const bool up = rest > tie || (rest == tie && (kept & 1U) != 0);
  return static_cast<std::uint16_t>(
      sign | (kept + (up ? 1 : 0)));  // a carry walks into the exponent, as it should
}

constexpr float float_from_bfloat16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

constexpr std::uint16_t bfloat16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return kBFloat16Nan;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace arcomm
