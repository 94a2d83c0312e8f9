// What was measured on this machine, and the choice that follows: for a number of ranks, a message
// size and a class of types, which algorithm is fastest on the host; and beside it, kept in the
// same file, what calls do without the worker, and the GPUs' table. A value: immutable once shared,
// so any thread may read it. Units: bytes of one rank's message, microseconds of one AllReduce.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/plan/tuning/gpu_tuning_table.h"
#include "daemon/plan/tuning/in_call_tuning.h"
#include "daemon/plan/tuning/tuning_key.h"
#include "daemon/plan/tuning/type_class.h"
#include "kernels/catalog.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

struct TuningPoint {
  std::uint32_t ranks = 2;
  std::uint64_t bytes = 0;
  TypeClass type_class = TypeClass::Plain;
  Algorithm algorithm = Algorithm::Inline;
  std::uint32_t tile_bytes = 0;  // 0 where the algorithm is not tiled
  double microseconds = 0;
  TuningKey key{};
  friend bool operator==(const TuningPoint&, const TuningPoint&) = default;
};

// What is split over threads is chosen where it was measured faster by more than this. Points are
// measured while no rank works; in service the threads that help wait for a core that a rank lets
// go: on 2 cores with 4 ranks 256 KB took two threads 72 to 80 us and the worker alone 53, and of
// 64 KB, which a tuned table gave to two, 59 and 14.
inline constexpr double kHelpUs = 40;

struct TuningTable {
  std::string source = "built in";  // where it came from, for people: a path, or "built in"
  std::string machine;              // what it was measured on; "" where unknown
  std::vector<TuningPoint> points;  // sorted by key, ranks, class, bytes, algorithm, tile

  // Sorts the points and works out the crossovers. Called by all that make a table.
  void settle();

  // The fastest at the measured size nearest to `bytes` (by ratio), for the nearest number of
  // ranks; null where nothing was measured. No allocation; deterministic: the same table and
  // question give the same answer.
  struct Crossover {
    std::uint32_t ranks = 0;
    TypeClass type_class = TypeClass::Plain;
    std::uint64_t from_bytes =
        0;  // this algorithm from here on, until the next one of the same key, ranks and class
    Algorithm algorithm = Algorithm::Inline;
    std::uint32_t tile_bytes = 0;
    TuningKey key{};
    friend bool operator==(const Crossover&, const Crossover&) = default;
  };
  const Crossover* find(std::uint32_t ranks, std::uint64_t bytes, DType dtype,
                        TuningKey key = {}) const;

  std::vector<Crossover> crossovers;  // made by settle(); sorted by key, ranks, class, from_bytes

  InCallTuning in_call;
  GpuTuningTable gpu = default_gpu_tuning();

  friend bool operator==(const TuningTable& a, const TuningTable& b) {
    return a.points == b.points && a.in_call == b.in_call && a.gpu == b.gpu;
  }
};

// What the daemon starts with when nothing was measured here.
TuningTable default_tuning();
// InvalidArgument/BadConfig with file, line and key for a text that is not a tuning table; every
// mistake it finds first.
Result<TuningTable> parse_tuning(std::string_view toml, std::string_view name);
// NotFound where there is no such file.
Result<TuningTable> load_tuning(const std::string& path);
// Valid TOML that parse_tuning() reads back to an equal table.
std::string print_tuning(const TuningTable& table);
// Writes beside the file and renames: a reader sees the old table or the new one.
Status save_tuning(const TuningTable& table, const std::string& path);

}  // namespace arcomm
