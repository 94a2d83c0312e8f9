#include "kernels/catalog.h"

#include <algorithm>
#include <array>

namespace arcomm {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

constexpr std::array kCatalog{
    AlgorithmEntry{.algorithm = Algorithm::Inline,
                   .name = "inline",
                   .is_tiled = false,
                   .is_non_temporal = false,
                   .max_ranks = kMaxRanks,
                   .max_bytes = 4 * kMiB,
                   .sensible_from = 0,
                   .description = "the worker reduces the whole operation itself: no hand-over"},
    AlgorithmEntry{.algorithm = Algorithm::Tiled,
                   .name = "tiled",
                   .is_tiled = true,
                   .is_non_temporal = false,
                   .max_ranks = kMaxRanks,
                   .max_bytes = kUnlimited,
                   .sensible_from = 32 * kKiB,
                   .description = "streams and worker pull tiles: all cores at work"},
    AlgorithmEntry{
        .algorithm = Algorithm::TiledStreaming,
        .name = "tiled_streaming",
        .is_tiled = true,
        .is_non_temporal = true,
        .max_ranks = kMaxRanks,
        .max_bytes = kUnlimited,
        .sensible_from = 4 * kMiB,
        .description = "tiled, results written around the caches: for what exceeds them"},
};

constexpr bool catalog_in_order() {
  for (std::size_t i = 0; i < kCatalog.size(); ++i) {
    if (static_cast<std::size_t>(kCatalog[i].algorithm) != i) return false;
  }
  return true;
}
static_assert(catalog_in_order(), "entry_of() indexes by the enum");

}  // namespace

std::span<const AlgorithmEntry> catalog() {
  return kCatalog;
}

const AlgorithmEntry& entry_of(Algorithm algorithm) {
  return kCatalog[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(Algorithm algorithm) {
  return entry_of(algorithm).name;
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  for (const AlgorithmEntry& entry : kCatalog) {
    if (entry.name == name) return entry.algorithm;
  }
  return std::nullopt;
}

bool can_run(const Choice& choice, std::uint64_t bytes_per_rank, std::uint32_t ranks) {
  const AlgorithmEntry& entry = entry_of(choice.algorithm);
  if (ranks < 1 || ranks > entry.max_ranks || bytes_per_rank > entry.max_bytes) return false;
  if (choice.streams < 1 || choice.streams > kMaxStreams) return false;
  if (!entry.is_tiled) return choice.streams == 1;
  return choice.tile_bytes >= kMinTileBytes && choice.tile_bytes <= kMaxTileBytes;
}

Choice default_choice(std::uint64_t bytes_per_rank, std::uint32_t ranks, std::uint32_t streams,
                      std::uint64_t cache_bytes) {
  const std::uint64_t touched = bytes_per_rank * 2 * std::max(ranks, 1U);
  // A stream that helps has to be woken, and to wait for a core that the ranks use: that costs
  // about as much as one core needs for these bytes.
  if (touched <= 2 * kMiB) return {};
  const bool beyond_cache = cache_bytes != 0 && touched > cache_bytes;
  return {.algorithm = beyond_cache ? Algorithm::TiledStreaming : Algorithm::Tiled,
          .tile_bytes = 64 * kKiB,
          .streams = std::clamp(streams, 1U, kMaxStreams)};
}

}  // namespace arcomm
