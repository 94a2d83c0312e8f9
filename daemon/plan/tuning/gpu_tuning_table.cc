#include "daemon/plan/tuning/gpu_tuning_table.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "daemon/plan/gpu_paths.h"
#include "daemon/plan/tuning/crossovers.h"

namespace arcomm {
namespace {

constexpr std::string_view kAuto = "auto";

auto order_of(const GpuTuningPoint& point) {
  return std::tuple(point.key, point.ranks, point.bytes, point.algorithm);
}

// What is fastest of one size, either way; 0 where that was not measured.
struct Rivals {
  std::uint64_t bytes = 0;
  double in_stream = 0, launched = 0;
};

// Of points of one key and number of ranks, in their order: the sizes that were measured both ways.
std::vector<Rivals> measured_both_ways(const std::vector<GpuTuningPoint>& points,
                                       std::uint32_t ranks, TuningKey key) {
  std::vector<Rivals> sizes;
  for (const GpuTuningPoint& point : points) {
    if (point.ranks != ranks || point.key != key) continue;
    if (sizes.empty() || sizes.back().bytes != point.bytes) sizes.push_back({.bytes = point.bytes});
    double& best = point.algorithm ? sizes.back().launched : sizes.back().in_stream;
    const double cost = cost_of(point);
    best = best == 0 ? cost : std::min(best, cost);
  }
  std::erase_if(sizes,
                [](const Rivals& size) { return size.in_stream == 0 || size.launched == 0; });
  return sizes;
}

// One bound for all sizes, so that one that was measured in a bad moment does not decide alone:
// where all that is below it, taken together by ratio, gains most.
std::uint64_t in_stream_bound(const std::vector<Rivals>& sizes, std::uint32_t ranks) {
  double gain = 0, most = 0;
  std::size_t end = 0;  // of those that are in-stream
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    gain += std::log(sizes[i].launched / sizes[i].in_stream);
    if (gain <= most) continue;
    most = gain;
    end = i + 1;
  }
  if (end == sizes.size()) return kUnlimitedInStreamBytes;
  const std::uint64_t bound = end == 0 ? 0 : half_way(sizes[end - 1].bytes, sizes[end].bytes) - 1;
  return std::max(bound, most_resident_bytes(ranks));
}

}  // namespace

std::string_view name_of(std::optional<CudaAlgorithm> algorithm) {
  return algorithm ? name_of(*algorithm) : kInStreamName;
}

double cost_of(const GpuTuningPoint& point) {
  return point.microseconds + (point.algorithm ? kHandOverUs : 0);
}

// Measured with tests/gpu's kernel_gpu_bench, between two and four GPUs.
GpuTuningTable default_gpu_tuning() {
  GpuTuningTable table;
  table.crossovers = {
      {2, 0, CudaAlgorithm::OneShotLl16},
      {2, 128ull << 10, CudaAlgorithm::OneShotLl128},
      {2, 3ull << 20, CudaAlgorithm::TwoShot},
      {2, 12ull << 20, CudaAlgorithm::Stream},
      {2, 256ull << 20, CudaAlgorithm::CopyEngine},
      {kMaxGpuRanks, 0, CudaAlgorithm::OneShotLl16},
      {kMaxGpuRanks, 64ull << 10, CudaAlgorithm::OneShotLl128},
      {kMaxGpuRanks, 512ull << 10, CudaAlgorithm::TwoShotLl128},
      {kMaxGpuRanks, (4ull << 20) + 1, CudaAlgorithm::Flash},
      {kMaxGpuRanks, 8ull << 20, CudaAlgorithm::Stream},
  };
  return table;
}

void GpuTuningTable::settle() {
  std::sort(points.begin(), points.end(), [](const GpuTuningPoint& a, const GpuTuningPoint& b) {
    return order_of(a) < order_of(b);
  });
  std::vector<GpuTuningPoint> launched = points;
  std::erase_if(launched, [](const GpuTuningPoint& point) { return !point.algorithm; });
  crossovers = crossovers_of<Crossover>(
      launched, [](const GpuTuningPoint& point) { return std::tuple(point.key, point.ranks); },
      cost_of,
      [](const GpuTuningPoint& best, std::uint64_t from_bytes) {
        return Crossover{best.ranks, from_bytes, *best.algorithm, best.key};
      });
  in_stream_bounds.clear();
  for (const Crossover& crossover : crossovers) {
    const auto& [ranks, key] = std::tie(crossover.ranks, crossover.key);
    if (!in_stream_bounds.empty() && in_stream_bounds.back().ranks == ranks &&
        in_stream_bounds.back().key == key)
      continue;
    in_stream_bounds.push_back(
        {ranks, in_stream_bound(measured_both_ways(points, ranks, key), ranks), key});
  }
}

std::uint64_t GpuTuningTable::most_in_stream_bytes(std::uint32_t ranks, TuningKey key) const {
  const Crossover* same = find(ranks, 0, key);
  for (const InStreamBound& bound : in_stream_bounds) {
    if (same != nullptr && bound.ranks == same->ranks && bound.key == key) return bound.most_bytes;
  }
  return kUnlimitedInStreamBytes;
}

const GpuTuningTable::Crossover* GpuTuningTable::find(std::uint32_t ranks, std::uint64_t bytes,
                                                      TuningKey key) const {
  std::uint32_t nearest = 0;
  for (const Crossover& crossover : crossovers) {
    if (crossover.key == key && nearest < ranks) nearest = crossover.ranks;
  }
  const Crossover* chosen = nullptr;
  for (const Crossover& crossover : crossovers) {
    if (crossover.key == key && crossover.ranks == nearest && crossover.from_bytes <= bytes)
      chosen = &crossover;
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
                     std::uint32_t ranks, std::uint64_t bytes, TuningKey key) {
  if (ranks <= 1) return CudaAlgorithm::Alone;
  if (forced && can_launch(*forced, bytes, ranks, key.codec)) return *forced;
  const GpuTuningTable::Crossover* measured = table.find(ranks, bytes, key);
  if (measured != nullptr && can_launch(measured->algorithm, bytes, ranks, key.codec))
    return measured->algorithm;
  return CudaAlgorithm::TwoShot;
}

}  // namespace arcomm
