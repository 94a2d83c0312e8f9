// How stream cuts an operation up, and where its slots lie: pure arithmetic, proven in
// tests/unit/kernels. Everything here follows from what all ranks know, because a sender must put a
// part where its reader looks for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/launch/cuda_scratch.h"
#include "kernels/partition.h"

namespace arcomm {

inline constexpr std::uint64_t kMinStreamTile = 4ull * 1024;
inline constexpr std::uint64_t kUsualStreamTile = 32ull * 1024;

// Each tile costs its lane a few waits, whatever its size, and during a lane's first tile its
// reducers have nothing to do. So a lane has one tile where that is small, and the largest tiles
// where it has many.
// Measured between two H200: 4 MB take 21 us in one tile per lane and 25 in four; 64 MB 194 us in
// tiles of 64 KB and 200 in those of 32; 16 MB 54.8 us in tiles of 32 KB and 56.4 in those of 64.
constexpr std::uint64_t stream_tile_bytes(std::uint64_t bytes, std::uint32_t ranks,
                                          std::uint32_t blocks) {
  constexpr std::uint64_t kManyTiles = 4;
  const auto divide_up = [](std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; };
  const std::uint64_t lines = divide_up(divide_up(bytes, kCacheLineBytes), ranks);  // of a shard
  const std::uint64_t lane = divide_up(lines, blocks) * kCacheLineBytes;
  if (lane >= kManyTiles * kStreamTileBytes) return kStreamTileBytes;
  return std::clamp(lane, kMinStreamTile, kUsualStreamTile);
}

// Tiles of so many elements, one per block and turn. The last turn is cut evenly: if some lanes had
// a whole tile more, the others would be idle meanwhile.
struct StreamTiles {
  std::uint32_t elements = 0;       // whole cache lines, so that all parts begin on one
  std::uint32_t last_elements = 0;  // these, too
  std::uint32_t turns = 0;
};
// For the first shard, which is as long as any.
constexpr StreamTiles stream_tiles(std::uint64_t shard_elements, DType dtype,
                                   std::uint64_t tile_bytes, std::uint32_t blocks) {
  const std::uint64_t elements = tile_elements(dtype, tile_bytes);
  const std::uint64_t whole = shard_elements / (elements * blocks);
  const std::uint64_t rest = shard_elements % (elements * blocks);
  const std::uint64_t per_line = kCacheLineBytes / size_of(dtype);
  const std::uint64_t last = tile_count(tile_count(rest, blocks), per_line) * per_line;
  return {.elements = static_cast<std::uint32_t>(elements),
          .last_elements = static_cast<std::uint32_t>(rest == 0 ? elements : last),
          .turns = static_cast<std::uint32_t>(whole + (rest == 0 ? 0 : 1))};
}

constexpr ElementRange stream_tile(ElementRange shard, const StreamTiles& tiles,
                                   std::uint32_t blocks, std::uint32_t block, std::uint32_t turn) {
  const std::uint64_t length = turn + 1 == tiles.turns ? tiles.last_elements : tiles.elements;
  const std::uint64_t first =
      shard.first + std::uint64_t{turn} * blocks * tiles.elements + std::uint64_t{block} * length;
  return {std::min(first, shard.last), std::min(first + length, shard.last)};
}

// Where `from` leaves its part of that turn for `reader`, in bytes from kStreamOffset. A rank sends
// nothing to itself, so it has no slots of its own.
constexpr std::uint64_t stream_slot_offset(std::uint32_t ranks, std::uint32_t reader,
                                           std::uint32_t from, std::uint32_t block,
                                           std::uint32_t turn) {
  const std::uint64_t slot = std::uint64_t{block} * kStreamSlots + turn % kStreamSlots;
  return (slot * (ranks - 1) + (from < reader ? from : from - 1)) * kStreamTileBytes;
}

}  // namespace arcomm
