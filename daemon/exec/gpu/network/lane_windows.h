// What a communicator of GPUs has of the network at its worker: memory for its peers' chunks, a
// window for each peer and lane (peer_wire.h), and a wire to each peer. Thread: the worker's; bytes
// come on the streams' threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/exec/gpu/network/peer_wire.h"
#include "daemon/exec/specs.h"

namespace arcomm {

class LaneWindows {
 public:
  LaneWindows(const CommunicatorSpec& spec, std::uint32_t lanes, std::uint32_t slot_bytes,
              Links& links);
  LaneWindows(const LaneWindows&) = delete;
  LaneWindows& operator=(const LaneWindows&) = delete;

  // Of all windows.
  static std::uint64_t bytes(std::size_t nodes, std::uint32_t lanes, std::uint32_t slot_bytes) {
    return (nodes - 1) * std::uint64_t{lanes} * kFifoSteps * slot_bytes;
  }
  // `memory`: so many bytes, alive until is_let_go(). Tells the peers.
  Status open(std::span<std::byte> memory);
  // A Window message. An error is the peer's fault.
  Status receive(std::uint32_t node, net::MessageKind kind, std::span<const std::byte> body);

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(wires_.size()); }
  std::uint32_t here() const { return here_; }
  PeerWire& wire(std::uint32_t node) const { return *wires_[node]; }
  // kFifoSteps slots.
  std::span<std::byte> slots(std::uint32_t node, std::uint32_t lane) const;

  // Of the operation that runs: what its wires carry is noted.
  StepNotes& notes() { return notes_; }
  // Nothing of this node's is on its way.
  bool are_back() const;

  // Nothing comes any more. False: a peer's bytes are on their way in; ask again.
  bool close();
  // Nothing of it runs any more. False: bytes are on their way, in or out; ask again.
  bool is_let_go();

 private:
  std::uint32_t before(std::uint32_t node) const { return node < here_ ? node : node - 1; }
  std::uint32_t first_arrival(std::uint32_t node) const { return node * lanes_ * kFifoSteps; }
  std::uint32_t first_credit(std::uint32_t node) const {
    return nodes() * lanes_ * kFifoSteps + node * lanes_;
  }

  Links& links_;
  const net::Regions::Owner owner_;
  const std::uint32_t here_, lanes_, slot_bytes_;
  std::span<std::byte> memory_;
  // By node: its arrivals by lane and slot; then, by node, credits by lane.
  std::vector<net::SignalWord> signals_;
  net::RegionId region_ = 0;
  StepNotes notes_;
  std::vector<std::unique_ptr<PeerWire>> wires_;  // by node; null here
};

}  // namespace arcomm
