// The algorithms that the host has, as a table of values for the planner, the tuner and `arctl tune
// --explain`. Immutable; any thread. Sizes are bytes per rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/args.h"

namespace arcomm {

// Numbers are written to tuning files by name, never by number.
enum class Algorithm : std::uint8_t {
  Inline,          // the worker reduces the whole operation itself
  Tiled,           // streams and worker pull tiles
  TiledStreaming,  // the same, results written around the caches
};

struct AlgorithmEntry {
  Algorithm algorithm;
  std::string_view name;  // as in tuning files and in `arctl tune`
  bool is_tiled;          // split by Choice::tile_bytes; more than one thread may pull
  bool is_non_temporal;   // writes results with stores that bypass the caches
  std::uint32_t max_ranks;
  std::uint64_t
      max_bytes;  // beyond it the choice is refused: one call would block the worker for too long
  std::uint64_t sensible_from;  // where the tuner starts to measure it
  std::string_view description;
};

// How to run one operation.
struct Choice {
  Algorithm algorithm = Algorithm::Inline;
  std::uint32_t tile_bytes = 0;  // per rank; 0 where the algorithm is not tiled
  std::uint32_t streams = 1;     // threads that pull tiles, the worker included

  friend bool operator==(const Choice&, const Choice&) = default;
};

inline constexpr std::uint32_t kMinTileBytes = 4 * 1024;
inline constexpr std::uint32_t kMaxTileBytes = 16 * 1024 * 1024;
inline constexpr std::uint32_t kMaxStreams = 64;

// One entry per Algorithm, in the enum's order.
std::span<const AlgorithmEntry> catalog();
const AlgorithmEntry& entry_of(Algorithm algorithm);
std::string_view name_of(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);

// Whether `choice` can run an operation of that shape: what the planner asks of a table that a
// person may have edited.
bool can_run(const Choice& choice, std::uint64_t bytes_per_rank, std::uint32_t ranks);
// What to do before anything was measured. `streams`: threads there are; `cache_bytes`: the
// last-level cache.
Choice default_choice(std::uint64_t bytes_per_rank, std::uint32_t ranks, std::uint32_t streams,
                      std::uint64_t cache_bytes);

}  // namespace arcomm
