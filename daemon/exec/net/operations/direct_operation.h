// Node k combines shard k of all nodes' partial results, in the order of nodes, and puts the result
// straight into the others' receive memory: two steps, each with all peers at once. Thread: the
// worker's.
//
// In place a shard's result arrives in memory that was sent from: it comes from the shard's owner,
// which has this node's chunk whole before it combines it, so the chunk has left. With a codec it
// arrives as blocks, at the place of its elements, and is decoded from there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/exec/net/operations/network_operation.h"
#include "daemon/exec/net/operations/result_region.h"
#include "daemon/exec/net/operations/seat_reduction.h"
#include "kernels/partition.h"

namespace arcomm {

class DirectOperation final : public NetworkOperation {
 public:
  explicit DirectOperation(NodeGroup& group)
      : group_(group), nodes_(group.nodes()), inputs_(group.nodes()) {}

  Status begin(const NetworkRequest& request) override;
  bool advance() override;
  bool is_done() const override;
  bool let_go() override;
  net::Regions::Damage damage() const override { return region_.damage(); }

 private:
  struct Node {
    ElementRange shard;
    std::uint64_t chunks = 0, first_chunk = 0;  // of the shard; among all chunks of the result
    std::uint64_t sent = 0;                     // to it, of its shard
    std::uint64_t put = 0;                      // to it, of ours
    std::uint64_t placed = 0;                   // from it, of its shard, at all seats
  };
  ElementRange range(const Node& node, std::uint64_t chunk) const;
  bool send_chunk(std::uint32_t node);
  // Each returns whether something moved; one that has computed ends the piece.
  bool send(bool& has_computed);
  bool reduce();
  bool result_room_is_free() const;
  // Of a chunk of this node's results: which travel to all others.
  std::span<const std::byte> payload_of(ElementRange part, std::uint64_t chunk) const;
  bool put();
  bool place(bool& has_computed);

  NodeGroup& group_;
  SeatReduction seats_;
  ResultRegion region_;
  std::uint64_t seq_ = 0, chunk_elements_ = 1;
  std::uint64_t reduced_ = 0;  // chunks of this node's shard
  std::uint64_t rooms_used_ = 0;
  std::array<std::uint32_t, NodeGroup::kRooms> room_for_{};  // which node's payload it holds
  std::vector<Node> nodes_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace arcomm
