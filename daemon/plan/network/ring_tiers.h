// How finely a ring between nodes works: chunks, and how many of them may be under way to a
// neighbour. By tiers that were measured between GPUs (Hopper's, and newer ones'), bounded by the
// bandwidth-delay product, by what one frame carries and by staging; settings may say otherwise,
// within the same bounds. Pure; any thread; allocates nothing. Sizes are bytes as they travel.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/settings.h"
#include "daemon/plan/network/network_shards.h"
#include "kernels/partition.h"

namespace arcomm {

// Whose tiers. Hosts take Hopper's: what TCP has under way is nearer to them.
enum class RingArch : std::uint8_t { Hopper, Newer };

// What there is for one ring.
struct RingRoom {
  RingArch arch = RingArch::Hopper;
  std::uint64_t element_bytes = 4;               // of what travels; with a codec, of a block
  std::uint64_t most_chunk_bytes = 16ull << 20;  // hosts: what a frame carries
  std::uint64_t staging_bytes = 32ull << 20;     // for chunks from one neighbour
};

// What decided how much is under way: the last one that took away from it, or else what decided
// the chunk.
enum class RingBound : std::uint8_t { Tier, Bdp, Chunk, Staging, Setting };
std::string_view text_of(RingBound bound);  // a noun: "the tier of this size"

struct RingShape {
  std::uint64_t chunk_bytes = 0;  // whole elements or blocks, one at least
  std::uint64_t slots = 1;        // chunks under way to a neighbour
  std::uint32_t depth = 1;        // of the tier: chunks that a shard was meant to have
  bool bidirectional = false;     // the all-gather goes both ways
  std::uint32_t blocks = 1;       // GPUs: of the kernel
  std::uint32_t threads = 0;      // GPUs: of a block; 0: as many as fit
  RingBound bound = RingBound::Tier;

  std::uint64_t in_flight_bytes() const { return chunk_bytes * slots; }
  friend bool operator==(const RingShape&, const RingShape&) = default;
};

// bytes: of one rank, as they travel. Precondition: nodes >= 1 and the room is for an element at
// least.
RingShape ring_shape(std::uint64_t bytes, std::uint32_t nodes, const RingRoom& room,
                     const Settings::Ring& limits);

// A large operation goes round several times, with a piece of every shard each time: as much as
// there are slots for, and all pieces about alike, so that the last is not small. A shard's element
// stays of this shard: rounds do not change the order of additions.
class RingRounds {
 public:
  // `slots`: chunks that a round has of a shard, at most. Precondition: chunk_elements > 0.
  RingRounds(const NetworkQuestion& question, std::uint64_t chunk_elements, std::uint64_t slots);

  std::uint64_t count() const { return rounds_; }
  std::uint64_t chunk_elements() const { return chunk_elements_; }
  // Precondition: round < count(). May be empty where the shard is smaller than others.
  ElementRange piece(std::uint32_t shard, std::uint64_t round) const;

 private:
  NetworkQuestion question_;
  std::uint64_t chunk_elements_ = 1, rounds_ = 1;
};

}  // namespace arcomm
