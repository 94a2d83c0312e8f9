// How copy_engine cuts an operation up, and where its slots lie: pure arithmetic, proven in
// tests/unit/daemon.
//
// All shards are equal, so that what one rank has for another fits where the first one's shard of
// the other's output is to be. What is left of the count, less than a line for each rank, is the
// last rank's as a chunk of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/launch/cuda_scratch.h"
#include "kernels/partition.h"

namespace arcomm {

inline constexpr std::uint64_t kMinCopyChunk = 1024ull * 1024;

struct CopyShape {
  std::uint64_t count = 0;                      // elements
  std::uint64_t shard = 0, chunk_elements = 0;  // whole cache lines
  std::uint64_t chunks = 0;                     // of each shard
  std::uint32_t ranks = 0;

  // With the rest, whose number is `chunks`.
  constexpr std::uint64_t all_chunks() const { return chunks + (shard * ranks < count ? 1 : 0); }
  // Of [0, count). Empty: the owner has no such chunk.
  constexpr ElementRange chunk_of(std::uint32_t owner, std::uint64_t chunk) const {
    if (chunk == chunks) return {owner + 1 == ranks ? shard * ranks : count, count};
    const std::uint64_t first = owner * shard + chunk * chunk_elements;
    return {first, std::min(first + chunk_elements, (owner + 1) * shard)};
  }
};

// A shard in two chunks where it fits: each travels while the other is combined, and a copy costs
// 3 us beside its bytes (H200). in_slots: a chunk has to fit into one. most_chunk_bytes: 0, or
// less.
constexpr CopyShape copy_shape(std::uint64_t count, DType dtype, std::uint32_t ranks, bool in_slots,
                               std::uint64_t most_chunk_bytes) {
  const std::uint64_t per_line = kCacheLineBytes / size_of(dtype);
  CopyShape shape{.count = count, .shard = count / ranks / per_line * per_line, .ranks = ranks};
  const std::uint64_t half = shape.shard * size_of(dtype) / 2 + kCacheLineBytes - 1;
  std::uint64_t bytes = std::max(half, kMinCopyChunk);
  if (in_slots) bytes = std::min(bytes, kCopySlotBytes);
  if (most_chunk_bytes != 0) bytes = std::min(bytes, most_chunk_bytes);
  shape.chunk_elements = tile_elements(dtype, bytes);
  shape.chunks = tile_count(shape.shard, shape.chunk_elements);
  return shape;
}

// Where the part that `from` has for `at` waits, in bytes from kCopyOffset.
constexpr std::uint64_t copy_slot_offset(std::uint32_t ranks, std::uint32_t at, std::uint32_t from,
                                         std::uint64_t chunk) {
  const std::uint64_t sender = from < at ? from : from - 1;
  return (chunk % kCopySlots * (ranks - 1) + sender) * kCopySlotBytes;
}

}  // namespace arcomm
