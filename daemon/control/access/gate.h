// Accepts connections on the three sockets, asks the kernel who connects, turns strangers away, and
// hands the rest on: gRPC connections to the server, descriptor connections to the descriptor
// channel.
//
// gRPC knows a connection only by its descriptor's number ("fd:N"). Numbers are therefore dealt out
// in rotation from a high range, so that one is not used again soon; and of every connection the
// gate keeps a second descriptor, by which it sees the hang-up. Thread: the control loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/control/access/caller.h"
#include "daemon/control/access/listener.h"
#include "daemon/control/access/peer_credentials.h"
#include "daemon/control/descriptors/fd_closer.h"
#include "daemon/control/rpc/event_loop.h"

namespace arcomm {

class Metrics;

class Gate {
 public:
  struct Parts {
    EventLoop& loop;
    Metrics& metrics;
    FdCloser& closer;  // of connections: a stranger may have put descriptors into them
    AccessGroups groups;
    std::uint64_t connections_per_uid = 0;
    std::function<void(UniqueFd)> adopt_rpc;  // takes the connection into the gRPC server
    std::function<void(UniqueFd, Caller)> adopt_descriptors;  // a connection of fd.sock
    std::function<void(ConnectionNumber)> hung_up;            // a gRPC connection is gone
  };
  explicit Gate(Parts parts);
  ~Gate();

  Status open(std::vector<ListeningSocket> sockets);
  void close_listeners();  // no new connections
  void close();            // those open are forgotten too

  // The caller behind gRPC's name of a connection ("fd:N").
  std::optional<Caller> find(const std::string& grpc_peer) const;
  // A descriptor connection has ended.
  void release(uid_t uid);
  void use_groups(AccessGroups groups);  // for the sockets and for new connections

 private:
  struct Connection {
    Caller caller;
    UniqueFd watched;
  };

  void accept_some(std::size_t listener);
  void admit(SocketKind kind, UniqueFd fd);
  void pause(std::size_t listener);
  void drop(int rpc_fd);
  void turn_away(SocketKind kind, UniqueFd fd, const PeerCredentials& peer, bool too_many);
  UniqueFd high_duplicate(int fd);

  Parts parts_;
  std::vector<ListeningSocket> listeners_;
  std::unordered_map<int, Connection> connections_;  // by the number that gRPC knows
  std::unordered_map<uid_t, std::uint64_t> per_uid_;
  ConnectionNumber next_connection_ = 1;
  int lowest_number_ = 0, highest_number_ = 0, next_number_ = 0;
};

}  // namespace arcomm
