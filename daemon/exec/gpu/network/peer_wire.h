// The way of a communicator's chunks to one other node, as the proxy's engine uses it: puts into
// that node's windows, and signals about this node's own. Thread: the worker's, as the links are.
//
// Step s of a lane goes into slot s % kFifoSteps of the receiver's window of that lane. A slot
// takes one chunk until it is given back, and its signal grows by that chunk's bytes: so the signal
// tells that it came, and how long it is. The first kFifoSteps steps of a lane find free slots; for
// each further one the receiver counts up the lane's credit among the sender's signals.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "daemon/exec/net/links/links.h"
#include "daemon/exec/net/step_notes.h"
#include "daemon/proxy/wire.h"
#include "proto/gpu/device_fifo.h"
#include "proto/net/message.h"
#include "transport/net/regions.h"

namespace arcomm {

class PeerWire final : public proxy::Wire {
 public:
  struct Parts {
    Links& links;
    NodeSpec node;
    net::Regions::Owner owner;
    std::uint32_t lanes = 1, slot_bytes = 0;
    std::span<net::SignalWord> arrivals;  // of its chunks: by lane and slot
    std::span<net::SignalWord> credits;   // that it gives: by lane
    StepNotes& notes;                     // of the operation that runs
    // Payloads of its that came changed.
    std::function<net::Regions::Damage()> damage;
    // Nothing comes into this node's slots any more. False: not yet, ask again.
    std::function<bool()> close;
  };
  explicit PeerWire(Parts parts);

  // Where its slots are: once. An error is the peer's fault.
  Status take(const net::WindowBody& window);
  const std::string& name() const { return parts_.node.name; }
  PeerId peer() const { return parts_.node.peer; }
  // Nothing of this node's is on its way to it.
  bool are_back() const;

  net::Progress send(std::uint32_t lane, std::uint64_t step, std::span<const std::byte> bytes,
                     Transfer& transfer) override;
  net::Progress receive(std::uint32_t lane, std::uint64_t step, std::span<std::byte> room,
                        Transfer& transfer) override;
  net::Progress test(Transfer transfer, std::uint32_t& bytes) override;
  net::Progress flush(std::uint32_t, std::span<const std::byte>) override {
    return net::Progress::Done;
  }
  net::Progress cancel(Transfer transfer) override;
  // Tells credits; what moves bytes are the links' threads.
  net::Progress progress() override;
  const Error& error() const override { return error_; }

 private:
  // Told for so many steps at once: half a window stays free meanwhile.
  static constexpr std::uint32_t kCreditsAtOnce = kFifoSteps / 2;

  struct Lane {
    std::array<net::OnLoan, kFifoSteps> on_loan{};  // what lies in this node's slots for sending
    std::array<std::uint64_t, kFifoSteps> seen{};   // of the arrivals
    std::uint32_t untold = 0;                       // credits
  };
  struct Which {
    bool sends = false;
    std::uint32_t lane = 0;
    std::uint64_t step = 0;
  };
  static Transfer name_of(Which which);
  static Which which(Transfer transfer);
  net::FrameHeader header(net::FrameKind kind, std::uint64_t step) const;
  bool post(const net::Frame& frame, net::OnLoan& on_loan);

  Parts parts_;
  net::WindowBody window_;  // slots 0: not told yet
  std::unique_ptr<Lane[]> lanes_;
  net::OnLoan credits_on_loan_{0};
  Error error_;
};

}  // namespace arcomm
