// This worker's links to other daemons: stream 0 of each, which the worker drives itself, and the
// bulk streams beside it. Thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "daemon/exec/specs.h"
#include "proto/net/frame.h"
#include "proto/net/message.h"
#include "proto/status.h"
#include "transport/net/connection.h"
#include "transport/net/regions.h"
#include "transport/net/streams/bulk_queue.h"

namespace arcomm {

class Links {
 public:
  virtual ~Links() = default;

  // A message on stream 0, copied; in order with all others to this peer. What the peer does not
  // take yet waits here, up to a bound; beyond it the link is failed. Nothing where there is no
  // link: its end is, or was, told.
  virtual void send(PeerId peer, net::MessageKind kind, const net::FrameHeader& names,
                    std::initializer_list<std::span<const std::byte>> parts) = 0;
  // A Put or Signal frame over whichever bulk stream is free; over stream 0 where there are none.
  // As BulkStreams::post: Again and Failed took nothing.
  virtual net::Progress post(PeerId peer, const net::Frame& frame, net::OnLoan& on_loan) = 0;
  // What this daemon's peers may put into, whichever link they come over. Null before any link.
  virtual net::Regions* regions() = 0;
  // Ends the link to a peer that holds up an operation which is to end: it has had payloads on
  // loan, or been half way into a region, for longer than the operation's clients may wait.
  virtual void sever(PeerId, const Error&) {}
  // Bytes that went to the peer and came from it: while the number grows, what is on loan may only
  // be waiting behind other communicators' payloads.
  virtual std::uint64_t moved_bytes(PeerId) const { return 0; }
};

}  // namespace arcomm
