// Which kernel is launched for an AllReduce between GPUs, by ranks and size: what was measured on
// this node, or else what was measured on an H200. Operations that the resident kernel takes
// (lane_of in proto/device_mailbox.h) are launched by nobody, whatever stands here. A value:
// immutable once shared, so any thread may read it. Units: bytes of one rank's message,
// microseconds of one AllReduce.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/launch_cuda.h"
#include "proto/status.h"

namespace arcomm {

struct GpuTuningPoint {
  std::uint32_t ranks = 2;
  std::uint64_t bytes = 0;
  CudaAlgorithm algorithm = CudaAlgorithm::TwoShotDirect;
  double microseconds = 0;
  friend bool operator==(const GpuTuningPoint&, const GpuTuningPoint&) = default;
};

struct GpuTuningTable {
  std::string source = "built in, measured on H200";  // for people; else a path
  std::string machine;                                // what it was measured on; "" where unknown
  std::vector<GpuTuningPoint> points;                 // sorted by ranks, bytes, algorithm

  // Sorts the points and works out the crossovers. Called by all that make a table of points.
  void settle();

  struct Crossover {
    std::uint32_t ranks = 0;
    std::uint64_t from_bytes = 0;  // until the next one of the same ranks
    CudaAlgorithm algorithm = CudaAlgorithm::TwoShotDirect;
    friend bool operator==(const Crossover&, const Crossover&) = default;
  };
  // For the smallest number of ranks that is not below `ranks`, else the largest there is: two GPUs
  // are a case of their own. Null only in an empty table. No allocation.
  const Crossover* find(std::uint32_t ranks, std::uint64_t bytes) const;

  std::vector<Crossover> crossovers;  // sorted by ranks, from_bytes

  friend bool operator==(const GpuTuningTable& a, const GpuTuningTable& b) {
    return a.points == b.points && a.crossovers == b.crossovers;
  }
};

// What the daemon starts with when nothing was measured here.
GpuTuningTable default_gpu_tuning();

std::string known_cuda_algorithms();  // "one_shot_ll16, ...", for messages
// The setting gpu.algorithm: a kernel's name, or "auto" for none. InvalidArgument/BadConfig names
// those there are.
Result<std::optional<CudaAlgorithm>> forced_algorithm(std::string_view setting);

// The kernel of an operation that is launched: the forced one where it takes so many ranks and
// bytes, else the table's, else one that takes everything.
CudaAlgorithm choose(const GpuTuningTable& table, std::optional<CudaAlgorithm> forced,
                     std::uint32_t ranks, std::uint64_t bytes);

}  // namespace arcomm
