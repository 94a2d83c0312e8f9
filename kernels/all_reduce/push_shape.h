// How tiled_push cuts an operation up: pure arithmetic, proven in tests/unit/kernels. All of it
// follows from what all ranks know, as a tile lies where its reader looks for it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/launch_cuda.h"

namespace arcomm {

inline constexpr std::uint32_t kMinPushTile = 2 * 1024;
// In shared memory: tiles of the own input, and of all others' inputs, that a block holds at once.
inline constexpr std::uint32_t kPushOwnStages = 7, kPushPeerStages = 4;

// Tiles of all peers lie in shared memory together: the more there are, the smaller they are.
constexpr std::uint32_t max_push_tile_bytes(std::uint32_t ranks) {
  return kMaxPushTileBytes / std::bit_ceil(ranks - 1);
}
// Several tiles per block where there is enough for it, so that the steps overlap.
constexpr std::uint32_t push_tile_bytes(std::uint64_t bytes, std::uint32_t ranks,
                                        std::uint32_t blocks) {
  constexpr std::uint64_t kTilesPerBlock = 4;
  const std::uint64_t each = bytes / (std::uint64_t{blocks} * kTilesPerBlock);
  return static_cast<std::uint32_t>(
      std::bit_floor(std::clamp<std::uint64_t>(each, kMinPushTile, max_push_tile_bytes(ranks))));
}
constexpr std::uint32_t push_slots(std::uint32_t tile_bytes) {
  return static_cast<std::uint32_t>(kPushLaneBytes / tile_bytes);
}
constexpr std::uint32_t push_shared_bytes(std::uint32_t tile_bytes, std::uint32_t ranks) {
  return (kPushOwnStages + kPushPeerStages * (ranks - 1)) * tile_bytes;
}
inline constexpr std::uint32_t kMaxPushSharedBytes = push_shared_bytes(kMaxPushTileBytes, 2);

// Where the slots of a block and a sender begin, in bytes from push_offset(). Halves alternate by
// epoch; a rank sends nothing to itself.
constexpr std::uint64_t push_lane_offset(std::uint32_t epoch, std::uint32_t ranks,
                                         std::uint32_t reader, std::uint32_t from,
                                         std::uint32_t block) {
  const std::uint64_t half = std::uint64_t{epoch & 1U} * kMaxPushBlocks;
  return ((half + block) * (ranks - 1) + (from < reader ? from : from - 1)) * kPushLaneBytes;
}

}  // namespace arcomm
