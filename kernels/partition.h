// Who reduces which elements: pure arithmetic, shared by every algorithm and proven in
// tests/unit/kernels. Every split covers [0, count) exactly once. Boundaries are multiples of a
// cache line's worth of elements, so that two threads never write one line when the buffers are
// aligned to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace arcomm {

inline constexpr std::uint64_t kCacheLineBytes = 64;

struct ElementRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;  // one past the end

  constexpr std::uint64_t size() const { return last - first; }
  constexpr bool empty() const { return first == last; }
  friend constexpr bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Elements in a tile of about `tile_bytes` per rank: whole cache lines, at least one.
constexpr std::uint64_t tile_elements(DType dtype, std::uint64_t tile_bytes) {
  const std::uint64_t lines = std::max<std::uint64_t>(tile_bytes / kCacheLineBytes, 1);
  return lines * (kCacheLineBytes / size_of(dtype));
}

// 0 for an empty operation.
constexpr std::uint64_t tile_count(std::uint64_t count, std::uint64_t elements_per_tile) {
  return count / elements_per_tile + (count % elements_per_tile != 0 ? 1 : 0);
}

// Precondition: tile < tile_count(count, elements_per_tile). Only the last tile is shorter than the
// others.
constexpr ElementRange tile_range(std::uint64_t count, std::uint64_t elements_per_tile,
                                  std::uint64_t tile) {
  const std::uint64_t first = tile * elements_per_tile;
  return {first, first + std::min(elements_per_tile, count - first)};
}

// How [0, count) is cut into one shard per owner: sizes differ by at most one cache line, and the
// shards of small counts are empty from the end. N: a type that can count a cache line past
// `count`.
template <typename N>
class ShardCut {
 public:
  constexpr ShardCut(N count, std::size_t element_bytes, N shards)
      : count_(count), per_line_(static_cast<N>(kCacheLineBytes / element_bytes)) {
    const N lines = count / per_line_ + (count % per_line_ != 0 ? 1 : 0);
    each_ = lines / shards;
    longer_ = lines % shards;
  }
  constexpr ElementRange of(N index) const {
    const N first_line = index * each_ + std::min(index, longer_);
    const N last_line = first_line + each_ + (index < longer_ ? 1 : 0);
    return {std::min(first_line * per_line_, count_), std::min(last_line * per_line_, count_)};
  }

 private:
  N count_, per_line_;
  N each_ = 0, longer_ = 0;  // lines of a shard, and how many shards have one more
};

// The part of [0, count) that owner `index` of `shards` holds.
constexpr ElementRange shard_range(std::uint64_t count, DType dtype, std::uint64_t shards,
                                   std::uint64_t index) {
  return ShardCut<std::uint64_t>(count, size_of(dtype), shards).of(index);
}

}  // namespace arcomm
