// Who sends which shard when in the ring: pure arithmetic, shared by kernel and host twin, proven
// in tests/unit/daemon/proxy. There are as many shards as nodes.
//
// Reduce, N - 1 rounds: in round r node i sends shard i - r to the right and adds its own part to
// shard i - r - 1, which comes from the left. In the last one that is shard i + 1, and complete.
// Gather: complete shards go round, all to the right in N - 1 rounds; or, in both directions, half
// of them to the left, in N / 2 rounds.
#pragma once

#include <cstdint>

#include "kernels/network/network_call.h"

namespace arcomm {

struct Ring {
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  bool is_bidirectional = false;

  constexpr std::uint32_t right() const { return shard(1); }
  constexpr std::uint32_t left() const { return shard(nodes - 1); }
  constexpr std::uint32_t reduce_rounds() const { return nodes - 1; }
  constexpr std::uint32_t right_rounds() const { return is_bidirectional ? nodes / 2 : nodes - 1; }
  constexpr std::uint32_t left_rounds() const { return is_bidirectional ? (nodes - 1) / 2 : 0; }

  // In rounds 0, 1, 2, ... of the reduction.
  constexpr std::uint32_t reduce_sends(std::uint32_t round) const { return shard(nodes - round); }
  constexpr std::uint32_t reduce_receives(std::uint32_t round) const {
    return shard(nodes - round - 1);
  }
  constexpr std::uint32_t owned() const { return shard(1); }
  // What comes from the left, to be sent on to the right but in the last round; and the other way.
  constexpr std::uint32_t from_left(std::uint32_t round) const { return shard(nodes - round); }
  constexpr std::uint32_t from_right(std::uint32_t round) const { return shard(2 + round); }

 private:
  constexpr std::uint32_t shard(std::uint32_t ahead) const { return (node + ahead) % nodes; }
};

// A shard goes round in partitions of at most `depth` chunks a lane, so that what is on its way
// fits into the slots. The chunks of one lane, one shard and one partition:
class RingChunks {
 public:
  constexpr RingChunks(const NetworkCall& call, std::uint32_t lane, std::uint32_t shard)
      : range_(shard_range(call.count, call.dtype, call.nodes, shard)),
        chunk_elements_(call.chunk_elements),
        lanes_(call.lanes),
        lane_(lane),
        depth_(call.depth),
        all_(chunks_of_lane(range_.size(), chunk_elements_, lanes_, lane)) {}

  constexpr std::uint64_t partitions() const { return tile_count(all_, depth_); }
  constexpr std::uint64_t in_partition(std::uint64_t partition) const {
    return partition < partitions() ? tile_range(all_, depth_, partition).size() : 0;
  }
  constexpr ElementRange chunk(std::uint64_t partition, std::uint64_t n) const {
    const ElementRange in_shard =
        chunk_of_lane(range_.size(), chunk_elements_, lanes_, lane_, partition * depth_ + n);
    return {range_.first + in_shard.first, range_.first + in_shard.last};
  }
  constexpr std::uint64_t all() const { return all_; }

 private:
  ElementRange range_;
  std::uint64_t chunk_elements_;
  std::uint32_t lanes_, lane_, depth_;
  std::uint64_t all_;
};

// Of all shards: the first is never shorter than another.
constexpr std::uint64_t ring_partitions(const NetworkCall& call, std::uint32_t lane) {
  return RingChunks(call, lane, 0).partitions();
}

// How many steps a node's operation takes on one of its FIFOs: what the proxy is told.
constexpr std::uint64_t exchange_steps(const NetworkCall& call, std::uint32_t lane) {
  return chunks_of_lane(call.count, call.chunk_elements, call.lanes, lane);
}
constexpr std::uint64_t ring_steps(const NetworkCall& call, bool is_bidirectional,
                                   std::uint32_t lane, std::uint32_t peer,
                                   FifoDirection direction) {
  const Ring ring{call.node, call.nodes, is_bidirectional};
  const bool sends = direction == FifoDirection::Send;
  std::uint64_t steps = 0;
  const auto add = [&](std::uint32_t shard) { steps += RingChunks(call, lane, shard).all(); };
  if (peer == (sends ? ring.right() : ring.left())) {
    for (std::uint32_t round = 0; round < ring.reduce_rounds(); ++round)
      add(sends ? ring.reduce_sends(round) : ring.reduce_receives(round));
    for (std::uint32_t round = 0; round < ring.right_rounds(); ++round)
      add(!sends ? ring.from_left(round) : round == 0 ? ring.owned() : ring.from_left(round - 1));
  }
  if (peer == (sends ? ring.left() : ring.right())) {
    for (std::uint32_t round = 0; round < ring.left_rounds(); ++round)
      add(!sends ? ring.from_right(round) : round == 0 ? ring.owned() : ring.from_right(round - 1));
  }
  return steps;
}

}  // namespace arcomm
