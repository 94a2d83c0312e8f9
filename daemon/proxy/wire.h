// What the proxy moves chunks over: one peer, both directions, any number of lanes. Steps of a lane
// arrive as they were sent: each once, in the room that the peer posted for the same step. Nothing
// waits: each call says which of three states it left, as transport/net/connection.h.
// Thread: the proxy's. Outlives the FIFOs that use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/status.h"
#include "transport/net/connection.h"

namespace arcomm::proxy {

class Wire {
 public:
  using Transfer = std::uint64_t;  // of this wire, never used again

  virtual ~Wire() = default;

  // Done: taken, in the order of the lane's steps; the bytes stay as they are until test() says
  // Done. Again: not taken, nothing was changed.
  virtual net::Progress send(std::uint32_t lane, std::uint64_t step,
                             std::span<const std::byte> bytes, Transfer& transfer) = 0;
  // Done: taken; the room may be written at once and is not to be read before test() says Done.
  virtual net::Progress receive(std::uint32_t lane, std::uint64_t step, std::span<std::byte> room,
                                Transfer& transfer) = 0;
  // Done: a send's bytes may be overwritten, a receive's have come, `bytes` of them, checked for
  // damage. Said once for a transfer.
  virtual net::Progress test(Transfer transfer, std::uint32_t& bytes) = 0;
  // Done: what has come is seen by the GPU, too. At once where a CPU wrote it.
  virtual net::Progress flush(std::uint32_t lane, std::span<const std::byte> bytes) = 0;
  // Done: the transfer's memory is not touched any more, and nothing comes on its lane any more,
  // which has lost a step. Also after a failure; never Failed.
  virtual net::Progress cancel(Transfer transfer) = 0;

  // Moves what can be moved now. Done: something moved; Again: nothing did.
  virtual net::Progress progress() = 0;
  // To be polled while the proxy sleeps, or -1.
  virtual int descriptor() const { return -1; }
  // Precondition: some call said Failed. Names the peer.
  virtual const Error& error() const = 0;
};

}  // namespace arcomm::proxy
