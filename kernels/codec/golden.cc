#include "kernels/codec/golden.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/host/element.h"

namespace arcomm::golden {
namespace {

using Codes = std::array<std::int32_t, kCodecBlock>;  // of fp8 the bits of e4m3fn

constexpr float magnitude_of_e4m3(std::uint32_t code) {
  const std::uint32_t exponent = code >> 3, mantissa = code & 7U;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-9F;
  float magnitude = static_cast<float>(8 + mantissa) * 0x1p-10F;  // of exponent 1: 2^-7 * 2^-3 * 8
  for (std::uint32_t i = 0; i < exponent; ++i) magnitude *= 2;
  return magnitude;
}

constexpr std::uint32_t kMostE4m3 = 0x7e;  // 448; 0x7f is the NaN
constexpr auto kE4m3 = [] {
  std::array<float, kMostE4m3 + 1> magnitudes{};
  for (std::uint32_t code = 0; code <= kMostE4m3; ++code) {
    magnitudes[code] = magnitude_of_e4m3(code);
  }
  return magnitudes;
}();
static_assert(kE4m3[1] == 0x1p-9F && kE4m3[8] == 0x1p-6F && kE4m3[0x38] == 1 &&
              kE4m3[kMostE4m3] == 448);

bool is_finite(Values values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// The first among those of the largest magnitude.
float largest(Values values) {
  float found = values[0];
  for (const float value : values) {
    if (std::fabs(value) > std::fabs(found)) found = value;
  }
  return found;
}

// bfloat16 bits. Zero where the whole block is taken for zeros.
std::uint16_t scale_of(const CodecFormat& format, Values values) {
  if (!is_finite(values)) return kNanScale;
  const float m = largest(values);
  if (std::fabs(m) < kLeastCodedMagnitude) return 0;
  const float exact =
      format.is_fp8() ? std::fabs(m) / 448.0F : -m / static_cast<float>(format.levels);
  const std::uint16_t rounded = bfloat16_from_float(exact);
  const std::uint32_t magnitude = std::min<std::uint32_t>(rounded & 0x7fffU, format.most_scale());
  return static_cast<std::uint16_t>((rounded & 0x8000U) | magnitude);
}

std::int32_t code_of(const CodecFormat& format, float value, float inverse) {
  const float steps = value * inverse;
  if (format.is_fp8()) return e4m3_from_float(steps);
  const auto levels = static_cast<float>(format.levels);
  return static_cast<std::int32_t>(std::clamp(std::nearbyint(steps), -levels, levels - 1));
}

std::uint32_t bits_at(const std::byte* bytes, std::uint32_t bits, std::uint32_t index) {
  const std::uint32_t per_byte = 8 / bits;
  return std::to_integer<std::uint32_t>(bytes[index / per_byte]) >> index % per_byte * bits &
         ((1U << bits) - 1);
}
void put_bits(std::byte* bytes, std::uint32_t bits, std::uint32_t index, std::uint32_t value) {
  const std::uint32_t per_byte = 8 / bits;
  bytes[index / per_byte] |=
      static_cast<std::byte>((value & ((1U << bits) - 1)) << index % per_byte * bits);
}

constexpr std::uint32_t kLowPlaneBytes = 16;  // of q6: the lower four bits, before the upper two

void write_codes(const CodecFormat& format, const Codes& codes, std::byte* block) {
  std::fill_n(block, format.code_bytes(), std::byte{0});
  for (std::uint32_t i = 0; i < kCodecBlock; ++i) {
    if (format.bits == 8) {
      put_bits(block, 8, i, static_cast<std::uint32_t>(codes[i]));
      continue;
    }
    const auto biased =
        static_cast<std::uint32_t>(codes[i] + static_cast<std::int32_t>(format.levels));
    put_bits(block, 4, i, biased);
    if (format.bits == 6) put_bits(block + kLowPlaneBytes, 2, i, biased >> 4);
  }
}

float read_code(const CodecFormat& format, const std::byte* block, std::uint32_t i) {
  if (format.bits == 8) {
    const auto byte = static_cast<std::uint8_t>(bits_at(block, 8, i));
    return format.is_fp8() ? float_from_e4m3(byte)
                           : static_cast<float>(static_cast<std::int8_t>(byte));
  }
  std::uint32_t biased = bits_at(block, 4, i);
  if (format.bits == 6) biased |= bits_at(block + kLowPlaneBytes, 2, i) << 4;
  return static_cast<float>(biased) - static_cast<float>(format.levels);
}

// What a scale may differ by for being a bfloat16, and one with which every code is finite.
constexpr double kScaleRounding = 0x1p-8;

// Of one value that is quantized among others of which `m` is the largest.
double quantization_bound(const CodecFormat& format, double value, double m) {
  const double a = std::fabs(m), x = std::fabs(value);
  if (a < kLeastCodedMagnitude) return x;
  if (format.is_fp8()) return std::max(x / 16, a / 448 * 0x1p-10) * (1 + kScaleRounding);
  const auto levels = static_cast<double>(format.levels);
  // Beyond the greatest code: on the side where there is one code less.
  const bool is_cut = std::signbit(value) != std::signbit(m) &&
                      x > a * (levels - 0.5) / levels * (1 - kScaleRounding);
  return is_cut ? a * (1 / levels + kScaleRounding)
                : a / (2 * levels) * (1 + kScaleRounding) + x * 0x1p-22;
}

}  // namespace

float float_from_e4m3(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fU;
  const float value =
      magnitude > kMostE4m3 ? std::numeric_limits<float>::quiet_NaN() : kE4m3[magnitude];
  return (code & 0x80U) != 0 ? -value : value;
}

std::uint8_t e4m3_from_float(float value) {
  const float magnitude = std::fabs(value);
  const auto above = static_cast<std::uint32_t>(std::ranges::upper_bound(kE4m3, magnitude) -
                                                kE4m3.begin());  // never 0: kE4m3 begins with it
  std::uint32_t code = above - 1;
  if (above <= kMostE4m3) {
    const float up = kE4m3[above] - magnitude, down = magnitude - kE4m3[code];
    if (up < down || (up == down && code % 2 != 0)) code = above;
  }
  return static_cast<std::uint8_t>((std::signbit(value) ? 0x80U : 0U) | code);
}

void transform(MutableValues values) {
  for (std::uint32_t stride = 1; stride < kCodecBlock; stride *= 2) {
    for (std::uint32_t i = 0; i < kCodecBlock; ++i) {
      if ((i & stride) != 0) continue;
      const float a = values[i], b = values[i + stride];
      values[i] = a + b;
      values[i + stride] = a - b;
    }
  }
}

void encode(Codec codec, Values values, std::byte* block) {
  const CodecFormat format = format_of(codec);
  std::array<float, kCodecBlock> quantized{};
  std::ranges::copy(values, quantized.begin());
  if (format.rotated) transform(quantized);
  const std::uint16_t stored = scale_of(format, quantized);
  Codes codes{};
  if (stored != 0 && stored != kNanScale) {
    const float inverse = 1.0F / float_from_bfloat16(stored);
    std::ranges::transform(quantized, codes.begin(),
                           [&](float value) { return code_of(format, value, inverse); });
  }
  write_codes(format, codes, block);
  block[format.code_bytes()] = static_cast<std::byte>(stored & 0xffU);
  block[format.code_bytes() + 1] = static_cast<std::byte>(stored >> 8);
}

void decode(Codec codec, const std::byte* block, MutableValues values) {
  const CodecFormat format = format_of(codec);
  const std::byte* scale = block + format.code_bytes();
  const float stored = float_from_bfloat16(static_cast<std::uint16_t>(
      std::to_integer<std::uint32_t>(scale[0]) | std::to_integer<std::uint32_t>(scale[1]) << 8));
  for (std::uint32_t i = 0; i < kCodecBlock; ++i) values[i] = read_code(format, block, i) * stored;
}

void round_trip(Codec codec, Values values, MutableValues result) {
  std::array<std::byte, kMostBlockBytes> block{};
  encode(codec, values, block.data());
  decode(codec, block.data(), result);
  if (!format_of(codec).rotated) return;
  transform(result);
  for (float& value : result) value *= 1.0F / 32;
}

void error_bounds(Codec codec, Values values, std::span<double, kCodecBlock> bounds) {
  const CodecFormat format = format_of(codec);
  std::array<float, kCodecBlock> quantized{};
  std::ranges::copy(values, quantized.begin());
  if (format.rotated) transform(quantized);
  if (!is_finite(quantized)) {
    std::ranges::fill(bounds, std::numeric_limits<double>::infinity());
    return;
  }
  const double m = largest(quantized);
  std::ranges::transform(quantized, bounds.begin(), [&](float value) {
    return quantization_bound(format, static_cast<double>(value), m);
  });
  if (!format.rotated) return;
  // Turned back, every value takes a 32nd of every error, and each of the ten stages has rounded.
  double errors = 0, magnitudes = 0, turned = 0;
  for (const double bound : bounds) errors += bound;
  for (const float value : values) magnitudes += std::fabs(static_cast<double>(value));
  for (const float value : quantized) turned += std::fabs(static_cast<double>(value));
  const bool may_overflow =
      turned + errors > static_cast<double>(std::numeric_limits<float>::max());
  std::ranges::fill(
      bounds, may_overflow ? std::numeric_limits<double>::infinity()
                           : errors / 32 + 5 * 0x1p-24 * (magnitudes + (turned + errors) / 32));
}

}  // namespace arcomm::golden
