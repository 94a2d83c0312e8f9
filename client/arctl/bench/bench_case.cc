#include "client/arctl/bench/bench_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace arcomm::arctl {

std::string_view text_of(Contender contender) {
  switch (contender) {
    case Contender::Arcommd:
      return "arcommd";
    case Contender::Nccl:
      return "nccl";
    case Contender::NcclSymmetric:
      return "nccl-symmetric";
  }
  return "unknown";
}

double Measured::percentile_us(double fraction) const {
  if (samples_us.empty()) return 0;
  std::vector<double> sorted = samples_us;
  std::sort(sorted.begin(), sorted.end());
  // Nearest rank: a value that was measured, not one between two.
  const double place = std::ceil(fraction * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(place, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

Bandwidth bandwidth(std::uint64_t bytes, double us, int ranks) {
  if (us <= 0) return {};
  const double gb_s = static_cast<double>(bytes) / us / 1e3;
  return {gb_s, gb_s * 2 * (ranks - 1) / ranks};
}

std::uint32_t default_iterations(std::uint64_t bytes) {
  constexpr std::uint64_t kBytesPerRound = 64ull << 20;
  const std::uint64_t fitting = kBytesPerRound / std::max<std::uint64_t>(bytes, 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fitting, 2, 1000));
}

std::uint32_t default_warmup(std::uint64_t bytes) {
  constexpr std::uint64_t kBytes = 4ull << 20;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kBytes / std::max<std::uint64_t>(bytes, 1), 5, 4096));
}

std::optional<DType> parse_dtype(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, DType>, 9> kShort = {{
      {"half", DType::Float16},
      {"fp16", DType::Float16},
      {"bf16", DType::BFloat16},
      {"float", DType::Float32},
      {"fp32", DType::Float32},
      {"double", DType::Float64},
      {"fp64", DType::Float64},
      {"int", DType::Int32},
      {"uint", DType::Uint32},
  }};
  for (const auto& [name, dtype] : kShort) {
    if (text == name) return dtype;
  }
  for (unsigned number = 0; number < kDTypes; ++number) {
    if (text == text_of(static_cast<DType>(number))) return static_cast<DType>(number);
  }
  return std::nullopt;
}

std::optional<ReduceOp> parse_op(std::string_view text) {
  for (unsigned number = 0; number < kReduceOps; ++number) {
    if (text == text_of(static_cast<ReduceOp>(number))) return static_cast<ReduceOp>(number);
  }
  return std::nullopt;
}

std::optional<Codec> parse_codec(std::string_view text) {
  for (unsigned number = 0; number < kCodecs; ++number) {
    if (text == text_of(static_cast<Codec>(number))) return static_cast<Codec>(number);
  }
  return std::nullopt;
}

}  // namespace arcomm::arctl
