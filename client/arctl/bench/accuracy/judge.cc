#include "client/arctl/bench/accuracy/judge.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "client/arctl/bench/codec_bound.h"
#include "client/arctl/bench/element.h"

namespace arcomm::arctl {
namespace {

// Half a step of the type, of a value and where values are denormal.
struct TypeRounding {
  double relative, least;
};
TypeRounding rounding_of(DType dtype) {
  if (dtype == DType::Float16) return {0x1p-11, 0x1p-25};
  return dtype == DType::BFloat16 ? TypeRounding{0x1p-8, 0x1p-134}
                                  : TypeRounding{0x1p-24, 0x1p-150};
}

// What the ranks gave of one block, together.
struct BlockSums {
  std::array<double, kCodecBlock> exact{}, magnitudes{}, bounds{};
  double largest = 0;
  bool counts_as_zeros = false;  // a rank's values, which are not

  void add(std::span<const float, kCodecBlock> values, Codec codec) {
    std::array<double, kCodecBlock> own{};
    codec_bounds(codec, values, own);
    double most = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      exact[i] += value;
      magnitudes[i] += std::fabs(value);
      bounds[i] += own[i];
      most = std::max(most, std::fabs(value));
    }
    largest += most;
    counts_as_zeros |= most > 0 && most < 0x1p-100;
  }
};

std::uint64_t digest_of(std::uint64_t digest, const std::byte* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    digest = (digest ^ std::to_integer<std::uint64_t>(bytes[i])) * 0x100000001b3;  // FNV-1a
  return digest;
}

}  // namespace

double AccuracyFound::snr_db() const {
  return 10 * std::log10(signal / noise);
}

double AccuracyFound::bias() const {
  if (signal == 0) return 0;
  const auto count = static_cast<double>(elements);
  return error_sum / count / std::sqrt(signal / count);
}

AccuracyFound judge(std::span<const std::vector<float>> inputs, const std::byte* result,
                    DType dtype, ReduceOp op, Codec codec) {
  const auto ranks = static_cast<double>(inputs.size());
  const double divisor = op == ReduceOp::Avg ? ranks : 1;
  const TypeRounding type = rounding_of(dtype);
  const std::uint64_t count = inputs.front().size();
  AccuracyFound found;
  found.digest = digest_of(0xcbf29ce484222325, result, count * size_of(dtype));
  for (std::uint64_t first = 0; first < count; first += kCodecBlock) {
    const std::uint64_t filled = std::min<std::uint64_t>(kCodecBlock, count - first);
    BlockSums sums;
    for (const std::vector<float>& input : inputs) {
      std::array<float, kCodecBlock> block{};
      std::copy_n(input.begin() + static_cast<std::ptrdiff_t>(first), filled, block.begin());
      sums.add(block, codec);
    }
    for (std::uint64_t i = 0; i < filled; ++i) {
      const double exact = sums.exact[i] / divisor;
      const double of_codec = sums.bounds[i] / divisor;
      // Each addition in float32, and the division, rounds what the ranks' magnitudes bound.
      const double of_float =
          ranks * 0x1p-24 * (sums.magnitudes[i] + sums.bounds[i]) / divisor + 0x1p-149;
      const double of_type = type.relative * (std::fabs(exact) + of_codec + of_float) + type.least;
      const double off = decode(dtype, result + (first + i) * size_of(dtype)) - exact;
      const double bound = of_codec + of_float + of_type;
      found.beyond += !(std::fabs(off) <= bound);  // a NaN is beyond any
      found.most_of_bound = std::max(found.most_of_bound, std::fabs(off) / bound);
      if (sums.largest > 0 && !sums.counts_as_zeros) {
        const double of_codec_alone = std::max(0.0, std::fabs(off) - of_float - of_type);
        found.most_of_largest =
            std::max(found.most_of_largest, of_codec_alone * divisor / sums.largest);
      }
      found.signal += exact * exact;
      found.noise += off * off;
      found.error_sum += off;
    }
  }
  found.elements = count;
  return found;
}

}  // namespace arcomm::arctl
