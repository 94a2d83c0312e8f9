// The connections that are relayed to the gRPC server (RelayedConnection), and who is at the other
// end of each.
//
// gRPC knows a connection only by its descriptor's number ("fd:N"). The numbers of the ends that it
// gets are therefore dealt out in rotation from a high range, so that one is not used again soon.
// Thread: the control loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "daemon/control/access/caller.h"
#include "daemon/control/access/relayed_connection.h"
#include "daemon/control/descriptors/fd_closer.h"
#include "daemon/control/rpc/event_loop.h"

namespace arcomm {

class Relay {
 public:
  struct Parts {
    EventLoop& loop;
    FdCloser& closer;  // of connections: a stranger may have put descriptors into them
    std::function<void(UniqueFd)> adopt_rpc;  // takes its end into the gRPC server
    // A connection is gone; why: as RelayedConnection says.
    std::function<void(const Caller&, const Error& why)> ended;
    RelayedConnection::Deadlines deadlines;
    // For people; empty: by pid and uid.
    std::function<std::string(const Caller&)> name_of = {};
  };
  explicit Relay(Parts parts);
  ~Relay() { close(); }

  // A connection that the gate admitted. False: no descriptor was left for it, and it is closed.
  bool adopt(UniqueFd client, const Caller& caller);
  // The caller behind gRPC's name of a connection ("fd:N").
  std::optional<Caller> find(const std::string& grpc_peer) const;
  // It brought too many frames that are no calls (flood_budget.h): until later.
  bool shuts_out(uid_t uid) const;
  void end(ConnectionNumber connection, const Error& why);
  void close();  // all of them, once gRPC's last words are on their way
  std::size_t size() const { return connections_.size(); }

 private:
  struct Entry {
    Caller caller;
    int number = -1;  // by which gRPC knows it; -1: not yet
    std::unique_ptr<RelayedConnection> connection;
  };

  Result<UniqueFd> open_server(ConnectionNumber connection);
  UniqueFd high_duplicate(int fd);
  void tell_closed(const Caller& caller, const Error& why) const;

  Parts parts_;
  FloodBudget budget_;  // before its connections
  std::unordered_map<ConnectionNumber, Entry> connections_;
  std::unordered_map<int, ConnectionNumber> by_number_;
  int lowest_number_ = 0, highest_number_ = 0, next_number_ = 0;
};

}  // namespace arcomm
