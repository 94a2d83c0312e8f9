#include "client/arctl/bench/codec_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace arcomm::arctl {
namespace {

using CodedBlock = std::array<float, kCodecBlock>;

constexpr double kScaleError = 0x1p-8;  // what a scale may be off by
constexpr double kLeastCoded = 0x1p-100;

void transform_block(CodedBlock& block) {
  for (std::size_t stride = 1; stride < block.size(); stride *= 2) {
    for (std::size_t first = 0; first < block.size(); first += 2 * stride) {
      for (std::size_t i = first; i < first + stride; ++i) {
        const float sum = block[i] + block[i + stride];
        block[i + stride] = block[i] - block[i + stride];
        block[i] = sum;
      }
    }
  }
}

// m: the first of those of the largest magnitude in the block.
double bound_of_value(const CodecFormat& format, double x, double m) {
  const double a = std::fabs(m), magnitude = std::fabs(x);
  if (a < kLeastCoded) return magnitude;
  if (format.is_fp8()) return std::max(magnitude / 16, a / 448 * 0x1p-10) * (1 + kScaleError);
  const double levels = format.levels;
  const bool is_cut = std::signbit(x) != std::signbit(m) &&
                      magnitude > a * (levels - 0.5) / levels * (1 - kScaleError);
  return is_cut ? a * (1 / levels + kScaleError)
                : a / (2 * levels) * (1 + kScaleError) + magnitude * 0x1p-22;
}

}  // namespace

void codec_bounds(Codec codec, std::span<const float, kCodecBlock> values,
                  std::span<double, kCodecBlock> bounds) {
  std::ranges::fill(bounds, 0.0);
  if (codec == Codec::None) return;
  const CodecFormat format = format_of(codec);
  CodedBlock quantized{};
  std::ranges::copy(values, quantized.begin());
  if (format.rotated) transform_block(quantized);
  float m = quantized[0];
  for (const float value : quantized) {
    if (std::fabs(value) > std::fabs(m)) m = value;
  }
  for (std::size_t i = 0; i < quantized.size(); ++i)
    bounds[i] = bound_of_value(format, static_cast<double>(quantized[i]), static_cast<double>(m));
  if (!format.rotated) return;
  double of_bounds = 0, of_values = 0, of_transform = 0;
  for (std::size_t i = 0; i < quantized.size(); ++i) {
    of_bounds += bounds[i];
    of_values += std::fabs(static_cast<double>(values[i]));
    of_transform += std::fabs(static_cast<double>(quantized[i]));
  }
  std::ranges::fill(bounds, of_bounds / kCodecBlock +
                                5 * 0x1p-24 * (of_values + (of_transform + of_bounds) / 32));
}

}  // namespace arcomm::arctl
