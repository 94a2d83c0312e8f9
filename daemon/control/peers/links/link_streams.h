// The connections of one link while they are made, on either side: of a pair one daemon hands out a
// key for each and collects them as they come, and the other one opens them. Stream 0 carries
// messages, the others bulk. Thread: the control loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/control/peers/links/data_ports.h"
#include "daemon/control/peers/links/link_keys.h"
#include "daemon/control/peers/peer_messenger.h"
#include "proto/arcommd/v1/peer.pb.h"
#include "proto/status.h"
#include "transport/net/connection.h"

namespace arcomm {

class LinkStreams {
 public:
  // What the side that is to connect says of itself: its interfaces, and how many streams besides
  // stream 0 it would have.
  static void describe(const DataPorts& ports, std::size_t streams, v1::ConnectRequest& request);

  // Begins the connections for which the peer handed out keys.
  Status open(DataPorts& ports, const PeerNode& peer, const v1::ConnectReply& reply);
  // Of those: Done when all stand. Failed: why() says which did not.
  net::Progress stand();
  const Error& why() const { return why_; }

  // Keys for connections that the peer is to open; those that are not used are the caller's to
  // drop.
  Result<v1::ConnectReply> expect(DataPorts& ports, LinkKeys& keys, const LinkName& name,
                                  const PeerNode& self, const PeerNode& peer, std::size_t streams,
                                  const v1::ConnectRequest& request);
  // One of them has come. True: it was the last.
  bool take(std::uint32_t stream, net::ConnectionPtr connection);

  // All of them, stream 0 first; size() and rails() stay.
  std::vector<net::ConnectionPtr> release();
  void drop() { open_.clear(); }

  std::size_t size() const { return rails_.size(); }
  const std::vector<std::uint32_t>& rails() const { return rails_; }  // of each

 private:
  Status open(DataPorts& ports, const PeerNode& peer, const v1::ConnectReply::Stream& stream);

  std::vector<net::ConnectionPtr> open_;
  std::vector<std::uint32_t> rails_;
  Error why_;
};

}  // namespace arcomm
