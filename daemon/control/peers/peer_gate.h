// The port of other daemons (net.listen): takes connections, as many as may be, and relays them to
// the server of PeerService. What connects is a stranger until a call of it has proven the
// token, and has kProofLimit for it; when there are many strangers the oldest goes. What a
// stranger's bytes meet is Relay's (daemon/control/README.md). Thread: the control loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "daemon/control/access/relay.h"
#include "daemon/control/descriptors/fd_closer.h"
#include "daemon/control/peers/peer_limits.h"
#include "daemon/control/rpc/event_loop.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class PeerGate {
 public:
  struct Parts {
    EventLoop& loop;
    FdCloser& closer;
    std::function<void(UniqueFd)> adopt_rpc;
    std::function<void(ConnectionNumber)> ended;
    RelayedConnection::Deadlines deadlines{};
    std::chrono::milliseconds proof_limit = kProofLimit;
  };
  explicit PeerGate(Parts parts);
  ~PeerGate() { close(); }

  Status open(UniqueFd listener);
  void close_listener();
  void close();

  std::optional<Caller> find(const std::string& grpc_peer) const { return relay_.find(grpc_peer); }
  // It is no stranger's.
  void trust(ConnectionNumber connection);
  std::uint64_t turned_away() const { return turned_away_; }
  std::size_t strangers() const { return strangers_.size(); }

 private:
  using Clock = EventLoop::Clock;
  struct Stranger {
    Clock::time_point since;
    EventLoop::TimerKey limit;
  };

  void accept_some();
  void admit(UniqueFd fd);
  // Room for one more connection; false: it is turned away.
  bool make_room();
  void turn_away(ConnectionNumber connection, const Error& why);

  Parts parts_;
  UniqueFd listener_;
  Relay relay_;
  std::map<ConnectionNumber, Stranger> strangers_;  // oldest first
  std::map<ConnectionNumber, std::string> names_;   // of all: where they come from
  ConnectionNumber next_connection_ = 1;
  std::uint64_t turned_away_ = 0;
};

}  // namespace arcomm
