// How much of an operation hosts have under way to each other: the same on all nodes, whatever
// staging they have, since it decides how operations are cut. Pure; any thread.
#pragma once

#include <cstdint>

#include "daemon/plan/network/ring_tiers.h"
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

constexpr RingRoom ring_room_of_hosts(std::uint32_t nodes, std::uint64_t element_bytes) {
  const std::uint64_t slot_bytes = slot_bytes_among(nodes);
  return {.arch = RingArch::Hopper,
          .element_bytes = element_bytes,
          .most_chunk_bytes = slot_bytes,
          .staging_bytes = kRingRooms * slot_bytes};
}

}  // namespace arcomm
