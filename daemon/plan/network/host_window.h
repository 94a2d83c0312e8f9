// How much of an operation hosts have under way to each other, and how what goes whole to a node is
// cut, by GPUs, too: the same on all nodes, whatever staging they have. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "daemon/plan/network/ring_tiers.h"
#include "kernels/partition.h"
#include "proto/net/frame.h"

namespace arcomm {

// Chunks in a window, where staging has room for so many.
inline constexpr std::uint32_t kMostSlots = 8;
// Of a ring's sums, that wait until they can be sent on.
inline constexpr std::uint64_t kRingRooms = 6;

// A chunk's most: among many nodes, each of which has a window, less.
constexpr std::uint32_t slot_bytes_among(std::uint32_t nodes) {
  constexpr auto kMost = static_cast<std::uint32_t>(net::kMostChunkBytes);
  if (nodes <= 8) return kMost;
  return kMost / (nodes <= 16 ? 2 : 4);
}

// Elements in a chunk: about an eighth of what goes to one node, so that all streams carry it and
// combining begins early; no more than a slot holds, and not so few that a chunk's own cost shows.
constexpr std::uint64_t chunk_elements(std::uint64_t elements, std::size_t wire_bytes,
                                       std::uint32_t slot_bytes) {
  constexpr std::uint64_t kLeastBytes = std::uint64_t{16} << 10, kPieces = 8;
  const std::uint64_t piece = elements * wire_bytes / kPieces;
  const std::uint64_t bytes = std::clamp<std::uint64_t>(piece, kLeastBytes, slot_bytes);
  // Whole cache lines of every type, and so of results, too, whose elements may be smaller.
  return bytes / wire_bytes / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace arcomm
