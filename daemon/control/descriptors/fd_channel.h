// The daemon's side of the descriptor socket, and its way of knowing that a client lives: a session
// ends when its descriptor connection hangs up or when its process ends (pidfd), whichever is seen
// first. Thread: the control loop.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "daemon/control/access/caller.h"
#include "daemon/control/descriptors/fd_closer.h"
#include "daemon/control/descriptors/fd_wire.h"
#include "daemon/control/rpc/event_loop.h"
#include "daemon/control/session_ledger.h"

namespace arcomm {

inline constexpr std::chrono::seconds kHelloTimeout{5};

class FdChannel {
 public:
  struct Parts {
    EventLoop& loop;
    SessionLedger& ledger;
    std::function<void(SessionId, std::string why)> ended;  // the client of a bound session is gone
    std::function<void(uid_t)> released;                    // a connection has been closed
  };
  explicit FdChannel(Parts parts) : parts_(std::move(parts)) {}
  ~FdChannel();

  void adopt(UniqueFd fd, Caller caller);
  // The session ended for another reason: its connection is closed without a further word.
  void forget(ConnectionNumber connection);
  std::size_t size() const { return connections_.size(); }
  FdCloser& closer() { return closer_; }  // for whatever a uid leaves behind

 private:
  struct Connection {
    Caller caller;
    UniqueFd socket, process;
    SessionId session;  // invalid until Hello
    EventLoop::TimerKey hello_deadline;
  };

  void on_readable(ConnectionNumber number, std::uint32_t events);
  // False: the connection has been closed.
  bool serve(ConnectionNumber number, Connection& connection, FdRequest request);
  Status hello(ConnectionNumber number, Connection& connection, const FdMessage& message);
  Status watch_process(ConnectionNumber number, Connection& connection);
  void close(ConnectionNumber number, const std::string& why);

  Parts parts_;
  FdCloser closer_;
  std::unordered_map<ConnectionNumber, Connection> connections_;
};

}  // namespace arcomm
