// Runs the operations of communicators that span nodes: partial results go out as chunks into the
// peers' windows, what arrives is combined, and results go to the nodes that lack them. One for
// each backend that has network steps. Thread: the worker's. Never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/comm/communicator.h"
#include "daemon/exec/backend.h"
#include "daemon/exec/net/links/links.h"
#include "daemon/exec/specs.h"
#include "proto/net/message.h"

namespace arcomm {

class FlightRecorder;

// What other nodes have said of an operation, which the agreement keeps until it has ended.
class OfferedData {
 public:
  virtual ~OfferedData() = default;
  // What came with a node's offer of `seq`, at an address that is a multiple of 8; empty where
  // nothing did.
  virtual std::span<const std::byte> inline_data(const Communicator& communicator,
                                                 std::uint64_t seq, std::uint32_t node) const = 0;
  // Of one that was agreed on: the highest that a node has offered it with, and so the same on all.
  virtual std::uint64_t turn_of(const Communicator& communicator, std::uint64_t seq) const = 0;
};

class NetworkExecutor {
 public:
  virtual ~NetworkExecutor() = default;

  // Where the steps of its operations go; it outlives the executor. Before the first is started.
  virtual void record_with(FlightRecorder&) {}

  // Staging for it, and where it is: told to its peers. ResourceExhausted, naming net.staging_bytes
  // and what has it.
  virtual Status form(Communicator& communicator, const CommunicatorSpec& spec) = 0;
  // It goes: nothing of it runs any more.
  virtual void forget(Communicator& communicator) = 0;

  // All seats have called: what may travel with the offer to all other nodes. Until the next call.
  virtual std::span<const std::byte> inline_data(Communicator& communicator,
                                                 const Arrival& arrival) = 0;
  // It is about to be offered: what else the other nodes are to know of it.
  struct Offering {
    std::uint64_t turn = 0;
    bool is_placed = false;
  };
  virtual Offering offering(Communicator&, const Arrival&) { return {}; }
  // Another node has offered it, and it has not ended here.
  virtual void offer_came(Communicator&, std::uint32_t, std::uint64_t, const net::OfferBody&) {}
  // It has been offered, though the offer has not left yet, and agrees with those that have come:
  // start() will follow, or not.
  virtual void offered(Communicator&, const Arrival&) {}
  // One of its own messages from a node; `body` is complete. An error is the peer's fault, and ends
  // the link.
  virtual Status receive(Communicator& communicator, std::uint32_t node, net::MessageKind kind,
                         const net::FrameHeader& names, std::span<const std::byte> body) = 0;

  // The nodes have agreed, and it is the head: as Backend's of these names.
  virtual Backend::Started start(Communicator& communicator, const OfferedData& offered,
                                 std::uint64_t now_ns, Failure& failure) = 0;
  virtual bool work() = 0;
  virtual bool collect(std::vector<Outcome>& outcomes) = 0;
  virtual void stop(Communicator& communicator) = 0;
  virtual bool idle() const = 0;
};

}  // namespace arcomm
