#include "kernels/host/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace arcomm {
namespace {

// The value of a binary16 number from the standard's formula, in double, which holds all of them.
double value_of_float16(std::uint16_t half) {
  const int exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_finite(std::uint16_t half) {
  return (half & 0x7c00) != 0x7c00;
}

TEST(Float16, WidensEveryFiniteNumberExactly) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const auto bits = static_cast<std::uint16_t>(half);
    if (!is_finite(bits)) continue;
    ASSERT_EQ(static_cast<double>(float_from_float16(bits)), value_of_float16(bits)) << half;
    ASSERT_EQ(std::signbit(float_from_float16(bits)), (bits & 0x8000) != 0) << half;
  }
}

TEST(Float16, WidensInfinityAndNaN) {
  EXPECT_EQ(float_from_float16(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(float_from_float16(0xfc00), -std::numeric_limits<float>::infinity());
  for (std::uint32_t mantissa = 1; mantissa < 0x400; ++mantissa) {
    EXPECT_TRUE(std::isnan(float_from_float16(static_cast<std::uint16_t>(0x7c00 | mantissa))));
  }
}

TEST(Float16, NarrowsBackToItselfForAllBits) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const auto bits = static_cast<std::uint16_t>(half);
    const float wide = float_from_float16(bits);
    ASSERT_EQ(float16_from_float(wide), std::isnan(wide) ? kFloat16Nan : bits) << half;
  }
}

// Between two neighbours: below the middle down, above it up, on it to the even one. Neighbours
// include the step from the largest finite number to where infinity would stand.
TEST(Float16, RoundsToNearestEvenBetweenAllNeighbours) {
  for (std::uint32_t half = 0; half < 0x7c00; ++half) {
    const auto low = static_cast<std::uint16_t>(half), high = static_cast<std::uint16_t>(half + 1);
    const double above = high == 0x7c00 ? 65536.0 : value_of_float16(high);
    const auto middle = static_cast<float>((value_of_float16(low) + above) / 2);
    const std::uint16_t even = (low & 1) == 0 ? low : high;
    ASSERT_EQ(float16_from_float(middle), even) << half;
    ASSERT_EQ(float16_from_float(std::nextafter(middle, 0.0F)), low) << half;
    ASSERT_EQ(float16_from_float(std::nextafter(middle, 1e9F)), high) << half;
    ASSERT_EQ(float16_from_float(-middle), even | 0x8000) << half;
  }
}

TEST(Float16, OverflowsToInfinityAndUnderflowsToSignedZero) {
  EXPECT_EQ(float16_from_float(1e30F), 0x7c00);
  EXPECT_EQ(float16_from_float(-1e30F), 0xfc00);
  EXPECT_EQ(float16_from_float(-1e-30F), 0x8000);
  EXPECT_EQ(float16_from_float(-std::numeric_limits<float>::quiet_NaN()), kFloat16Nan);
}

TEST(BFloat16, NarrowsBackToItselfForAllBits) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const auto bits = static_cast<std::uint16_t>(half);
    const float wide = float_from_bfloat16(bits);
    ASSERT_EQ(bfloat16_from_float(wide), std::isnan(wide) ? kBFloat16Nan : bits) << half;
  }
}

TEST(BFloat16, RoundsToNearestEvenBetweenAllNeighbours) {
  for (std::uint32_t half = 0; half < 0x7f80; ++half) {
    const float middle = std::bit_cast<float>((half << 16) | 0x8000U);
    const auto low = static_cast<std::uint16_t>(half), high = static_cast<std::uint16_t>(half + 1);
    ASSERT_EQ(bfloat16_from_float(middle), (low & 1) == 0 ? low : high) << half;
    ASSERT_EQ(bfloat16_from_float(std::bit_cast<float>((half << 16) | 0x7fffU)), low) << half;
    ASSERT_EQ(bfloat16_from_float(std::bit_cast<float>((half << 16) | 0x8001U)), high) << half;
  }
}

}  // namespace
}  // namespace arcomm
