// Every node's partial result goes whole to all others, and each combines all of them, in the order
// of nodes: one step. Small ones travel with the offers, and are combined at once. Thread: the
// worker's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/exec/net/operations/network_operation.h"
#include "daemon/exec/net/operations/seat_reduction.h"
#include "kernels/partition.h"

namespace arcomm {

class ExchangeOperation final : public NetworkOperation {
 public:
  explicit ExchangeOperation(NodeGroup& group)
      : group_(group), peers_(group.nodes()), inputs_(group.nodes()) {}

  Status begin(const NetworkRequest& request) override;
  bool advance() override;
  bool is_done() const override { return combined_ == chunks_; }
  bool let_go() override { return group_.partials().are_back(); }

 private:
  struct Peer {
    std::span<const std::byte> offered;  // its partial result, if it came with the offer
    std::uint64_t sent = 0;              // chunks
  };
  ElementRange range(std::uint64_t chunk) const {
    return tile_range(count_, chunk_elements_, chunk);
  }
  bool compute();
  bool send();
  bool combine();

  NodeGroup& group_;
  SeatReduction seats_;
  std::uint64_t seq_ = 0, count_ = 0;
  std::uint64_t chunk_elements_ = 1, chunks_ = 0;
  // Chunks of this node's partial result that are there to be sent, and whose memory may be used
  // again: never more than Loans::kAhead between the two.
  std::uint64_t computed_ = 0, combined_ = 0;
  std::array<std::span<const std::byte>, Loans::kAhead> own_{};  // by chunk
  std::vector<Peer> peers_;                                      // by node
  std::vector<const std::byte*> inputs_;
};

}  // namespace arcomm
