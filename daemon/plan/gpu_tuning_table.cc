#include "daemon/plan/gpu_tuning_table.h"

#include <algorithm>
#include <tuple>

#include "daemon/plan/crossovers.h"

namespace arcomm {
namespace {

constexpr std::string_view kAuto = "auto";

auto order_of(const GpuTuningPoint& point) {
  return std::tuple(point.ranks, point.bytes, point.algorithm);
}

}  // namespace

// Measured with tests/gpu's kernel_gpu_bench, between two and four GPUs.
GpuTuningTable default_gpu_tuning() {
  GpuTuningTable table;
  table.crossovers = {
      {2, 0, CudaAlgorithm::OneShotLl16},
      {2, 128ull << 10, CudaAlgorithm::OneShotLl128},
      {2, 3ull << 20, CudaAlgorithm::TwoShotDirect},
      {2, 12ull << 20, CudaAlgorithm::Stream},
      {2, 256ull << 20, CudaAlgorithm::CopyEngine},
      {kMaxCudaRanks, 0, CudaAlgorithm::OneShotLl16},
      {kMaxCudaRanks, 64ull << 10, CudaAlgorithm::OneShotLl128},
      {kMaxCudaRanks, 512ull << 10, CudaAlgorithm::TwoShotLl128},
      {kMaxCudaRanks, (4ull << 20) + 1, CudaAlgorithm::Flash},
      {kMaxCudaRanks, 8ull << 20, CudaAlgorithm::Stream},
  };
  return table;
}

void GpuTuningTable::settle() {
  std::sort(points.begin(), points.end(), [](const GpuTuningPoint& a, const GpuTuningPoint& b) {
    return order_of(a) < order_of(b);
  });
  crossovers = crossovers_of<Crossover>(
      points, [](const GpuTuningPoint& point) { return point.ranks; },
      [](const GpuTuningPoint& point) { return point.microseconds; },
      [](const GpuTuningPoint& best, std::uint64_t from_bytes) {
        return Crossover{best.ranks, from_bytes, best.algorithm};
      });
}

const GpuTuningTable::Crossover* GpuTuningTable::find(std::uint32_t ranks,
                                                      std::uint64_t bytes) const {
  std::uint32_t nearest = 0;
  for (const Crossover& crossover : crossovers) {
    if (nearest < ranks) nearest = crossover.ranks;
  }
  const Crossover* chosen = nullptr;
  for (const Crossover& crossover : crossovers) {
    if (crossover.ranks == nearest && crossover.from_bytes <= bytes) chosen = &crossover;
  }
  return chosen;
}

std::string known_cuda_algorithms() {
  std::string names;
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

Result<std::optional<CudaAlgorithm>> forced_algorithm(std::string_view setting) {
  if (setting == kAuto) return std::optional<CudaAlgorithm>();
  if (const std::optional<CudaAlgorithm> named = cuda_algorithm_named(setting)) return named;
  return error(ErrorCode::InvalidArgument, Reason::BadConfig, "gpu.algorithm \"", setting,
               "\" is unknown: set it to ", kAuto, ", ", known_cuda_algorithms());
}

CudaAlgorithm choose(const GpuTuningTable& table, std::optional<CudaAlgorithm> forced,
                     std::uint32_t ranks, std::uint64_t bytes) {
  if (ranks <= 1) return CudaAlgorithm::Alone;
  if (forced && can_launch(*forced, bytes, ranks)) return *forced;
  const GpuTuningTable::Crossover* measured = table.find(ranks, bytes);
  if (measured != nullptr && can_launch(measured->algorithm, bytes, ranks))
    return measured->algorithm;
  return CudaAlgorithm::TwoShotDirect;
}

}  // namespace arcomm
