// One connection between two daemons over one rail (a pair of interfaces): frames go both ways, in
// order. Nothing waits: each call does what can be done now and says which of three states it left.
// Thread: one at a time; whoever owns the connection calls progress() until it has nothing to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "proto/net/frame.h"
#include "proto/status.h"
#include "transport/net/receiver.h"

namespace arcomm::net {

enum class Progress : std::uint8_t {
  Done,
  Again,   // not yet: nothing was changed
  Failed,  // never: error() says why
};

// What a transport can do; the same for all connections of an endpoint.
struct Capabilities {
  std::string_view transport;
  std::size_t most_posted = 0;      // frames that wait to be sent before post() says Again
  bool puts_past_the_peer = false;  // a put needs no work of the peer's processor
  bool may_not_copy = false;        // send_without_copies() is worth a try
  bool device_memory = false;       // sends from and receives into memory of GPUs
};

// How the way to the peer is, as far as the transport knows; 0 where it does not.
struct LinkStatistics {
  std::uint32_t rtt_us = 0, rtt_variance_us = 0, least_rtt_us = 0;
  std::uint32_t retransmits = 0;  // segments
  std::uint64_t retransmitted_bytes = 0;
  std::uint64_t sent_bytes = 0, acknowledged_bytes = 0, received_bytes = 0;  // with headers
  std::uint64_t delivered_bytes_per_second = 0;                              // lately
  // How long sending has waited, for room at the peer and for room in this side's buffer.
  std::uint64_t waited_for_peer_us = 0, waited_for_buffer_us = 0;
  // Sends without a copy, and those of them that were copied in the end.
  std::uint64_t uncopied_sends = 0, copied_anyway = 0;
  bool operator==(const LinkStatistics&) const = default;
};

// What is to be sent. The sender fills kind and the fields that the kind has a use for; number,
// length and checksums are the connection's. The payload stays the caller's until test() says that
// it has been sent. That of a Put or Chunk may be memory that a client can write: what is changed
// meanwhile no longer fits its checksum, which the peer finds and tells the region's owner there
// (Regions::damaged), with no harm to anybody else. A Message's is the daemon's own: a wrong one
// ends the connection, which serves all.
struct Frame {
  FrameHeader header;
  std::span<const std::byte> payload;
};

// The n-th frame that was posted on its connection.
using Transfer = std::uint64_t;

class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  virtual const Capabilities& capabilities() const = 0;
  // "node-b (10.0.0.2:7400), stream 3 over rail 0", for people; every error begins with it.
  virtual const std::string& name() const = 0;

  // Done: open for frames. Again: the two sides are still greeting each other; what is posted
  // meanwhile waits until the peer has said welcome.
  virtual Progress is_open() const = 0;

  // Takes a frame of kind Message, Chunk, Put or Signal; Again: most_posted frames wait. Put: the
  // bytes are at the peer's before its signal is raised, and before any later frame is handed over.
  virtual Progress post(const Frame& frame, Transfer& transfer) = 0;
  // Done: the payload may be used again. It does not say that the peer has it.
  virtual Progress test(Transfer transfer) const = 0;
  // test() of everything that was posted.
  virtual Progress flush() const = 0;

  // Whether large payloads are read where they lie until the peer has them, and not copied first:
  // test() says Done later then. For some networks that is faster, for loopback slower. True: it
  // does so from now on. False: it copies, because that was wanted or nothing else is possible.
  virtual bool send_without_copies(bool wanted) = 0;

  // Sends and receives what can be now. Done: something moved, come again; Again: nothing did.
  // Where the peer breaks the protocol the connection is closed as by close(), telling it what was
  // wrong: is_open() says Failed from then on, and progress() once the goodbye has left.
  virtual Progress progress(Receiver& receiver) = 0;

  // Tells the peer why, after what was posted, and ends: from here on every call says Failed, with
  // this reason, once the goodbye has left. Goes on in progress().
  virtual void close(std::string_view why) = 0;
  // Gives back the place of a frame that is half there; nothing is received any more. Before the
  // receiver goes.
  virtual void abandon(Receiver& receiver) = 0;

  // Precondition: some call said Failed. Unavailable/RemoteDied, or what the peer did wrong.
  virtual const Error& error() const = 0;

  // Since the connection began; nothing once it has failed.
  virtual LinkStatistics statistics() const = 0;

  // For sleeping until there is something to do: a descriptor to poll, or -1 where polling is all;
  // whether room for sending is waited for; and whether what comes would be read, which it is not
  // while a frame waits for room at the receiver.
  virtual int descriptor() const = 0;
  virtual bool wants_to_send() const = 0;
  virtual bool wants_to_receive() const = 0;

 protected:
  Connection() = default;
};
using ConnectionPtr = std::unique_ptr<Connection>;

// What a peer that broke the protocol is told begins with it.
inline constexpr std::string_view kYourFault = "what this daemon sent is wrong: ";

}  // namespace arcomm::net
