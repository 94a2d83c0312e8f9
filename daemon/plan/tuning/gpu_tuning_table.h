// Which kernel is launched for an AllReduce between GPUs, by ranks and size, and up to which size
// clients launch it themselves: what was measured on this node, or else what was measured on an
// H200. What of it holds for a communicator goes into its launch table (launch_table_builder.h):
// operations that the resident kernel takes are launched by nobody, whatever stands here. A value:
// immutable once shared, so any thread may read it. Units: bytes of one rank's message,
// microseconds of one AllReduce.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/plan/tuning/tuning_key.h"
#include "kernels/cuda_algorithms.h"
#include "proto/status.h"

namespace arcomm {

struct GpuTuningPoint {
  std::uint32_t ranks = 2;
  std::uint64_t bytes = 0;
  // None: an in-stream operation, which clients launch with the kernel that the launch table
  // names for the size.
  std::optional<CudaAlgorithm> algorithm = CudaAlgorithm::TwoShot;
  double microseconds = 0;
  TuningKey key{};
  friend bool operator==(const GpuTuningPoint&, const GpuTuningPoint&) = default;
};

// "in-stream" for none.
std::string_view name_of(std::optional<CudaAlgorithm> algorithm);

// What the daemon launches it has to be asked for. Points are measured without that; in service,
// between two H200, it was 1.5 to 3 us.
inline constexpr double kHandOverUs = 2;
// By which points of one size are compared.
double cost_of(const GpuTuningPoint& point);

inline constexpr std::uint64_t kUnlimitedInStreamBytes = ~std::uint64_t{0};

struct GpuTuningTable {
  std::string source = "built in, measured on H200";  // for people; else a path
  std::string machine;                                // what it was measured on; "" where unknown
  std::vector<GpuTuningPoint> points;                 // sorted by key, ranks, bytes, algorithm

  // Sorts the points and works out crossovers and bounds. Called by all that make a table of
  // points.
  void settle();

  struct Crossover {
    std::uint32_t ranks = 0;
    std::uint64_t from_bytes = 0;  // until the next one of the same key and ranks
    CudaAlgorithm algorithm = CudaAlgorithm::TwoShot;
    TuningKey key{};
    friend bool operator==(const Crossover&, const Crossover&) = default;
  };
  // For the smallest number of ranks that is not below `ranks`, else the largest there is: two GPUs
  // are a case of their own. Null only where nothing that is launched was measured. No allocation.
  const Crossover* find(std::uint32_t ranks, std::uint64_t bytes, TuningKey key = {}) const;

  // Up to which size clients launch operations themselves, where they can: at least what the
  // resident kernel would take instead, which nobody measures, and kUnlimitedInStreamBytes where it
  // was not measured, or nothing else was faster. Of the same number of ranks as find()'s.
  std::uint64_t most_in_stream_bytes(std::uint32_t ranks, TuningKey key = {}) const;

  struct InStreamBound {
    std::uint32_t ranks = 0;
    std::uint64_t most_bytes = kUnlimitedInStreamBytes;
    TuningKey key{};
    friend bool operator==(const InStreamBound&, const InStreamBound&) = default;
  };
  std::vector<Crossover> crossovers;  // sorted by key, ranks, from_bytes
  std::vector<InStreamBound>
      in_stream_bounds;  // sorted by key, ranks; only those that are measured

  friend bool operator==(const GpuTuningTable& a, const GpuTuningTable& b) {
    return a.points == b.points && a.crossovers == b.crossovers &&
           a.in_stream_bounds == b.in_stream_bounds;
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
                     std::uint32_t ranks, std::uint64_t bytes, TuningKey key = {});

}  // namespace arcomm
