// Accepts connections on the three sockets, asks the kernel who connects, turns away strangers and
// those who have more than their share, and hands the rest on: gRPC connections to the relay,
// descriptor connections to the descriptor channel. Thread: the control loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/access/caller.h"
#include "daemon/control/access/listener.h"
#include "daemon/control/access/peer_credentials.h"
#include "daemon/control/access/relay.h"
#include "daemon/control/descriptors/fd_closer.h"
#include "daemon/control/rpc/event_loop.h"
#include "daemon/memory/fair_share.h"

namespace arcomm {

class Metrics;

class ConnectionGate {
 public:
  struct Parts {
    EventLoop& loop;
    Metrics& metrics;
    FdCloser& closer;  // of connections: a stranger may have put descriptors into them
    AccessGroups groups;
    FairShare::Limits connections;
    std::function<void(UniqueFd)> adopt_rpc;  // takes a relayed connection into the gRPC server
    std::function<void(UniqueFd, Caller)> adopt_descriptors;  // a connection of fd.sock
    std::function<void(ConnectionNumber)> hung_up;            // a gRPC connection is gone
    RelayedConnection::Deadlines deadlines{};
  };
  explicit ConnectionGate(Parts parts);
  ~ConnectionGate();

  Status open(std::vector<ListeningSocket> sockets);
  void close_listeners();  // no new connections
  void close();            // those open are forgotten too

  // The caller behind gRPC's name of a connection ("fd:N").
  std::optional<Caller> find(const std::string& grpc_peer) const { return relay_.find(grpc_peer); }
  // A descriptor connection has ended.
  void release(uid_t uid);
  void use_groups(AccessGroups groups);  // for the sockets and for new connections
  const FairShare& connections() const { return shares_; }
  void use_connection_limits(FairShare::Limits limits);  // for new connections

 private:
  void accept_some(std::size_t listener);
  void admit(SocketKind kind, UniqueFd fd);
  void pause(std::size_t listener);
  // "" or why it may have no further connection.
  std::string find_excess(SocketKind kind, const PeerCredentials& peer) const;
  void turn_away(SocketKind kind, UniqueFd fd, const PeerCredentials& peer,
                 const std::string& excess);
  void tell_flood(const Caller& caller, const Error& why);

  Parts parts_;
  std::vector<ListeningSocket> listeners_;
  Relay relay_;
  FairShare shares_;
  ConnectionNumber next_connection_ = 1;
};

}  // namespace arcomm
