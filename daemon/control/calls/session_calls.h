// The calls that begin and end a session, and everything else that ends one: the descriptor
// connection, the gRPC connection before the Hello, the worker. Owns the descriptor channel, where
// a session says Hello. Thread: the control loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "daemon/control/calls/buffers/buffer_calls.h"
#include "daemon/control/calls/communicators/communicator_joins.h"
#include "daemon/control/calls/session_groups.h"
#include "daemon/control/control_state.h"
#include "daemon/control/descriptors/fd_channel.h"
#include "daemon/session/kept_rings.h"

namespace arcomm {

class SessionCalls {
 public:
  struct Parts {
    ControlState& state;
    KeptRings& kept_rings;
    CommunicatorJoins& joins;  // these two hear of each session's end
    BufferCalls& buffers;
    SessionGroups& groups;
  };
  explicit SessionCalls(Parts parts);

  void attach(const Caller& caller, const v1::AttachRequest& request,
              Answer<v1::AttachReply> answer);
  void detach(const Caller& caller, const v1::DetachRequest& request, Answer<v1::Empty> answer);

  // A gRPC connection: it takes along the sessions that have not said Hello, and those that are not
  // open yet.
  void connection_hung_up(ConnectionNumber connection);
  // The worker let go of it.
  void lost(SessionId session, Reason reason, const std::string& why);

  FdChannel& descriptors() { return descriptors_; }
  // Called when a descriptor connection has been closed.
  void on_descriptor_release(std::function<void(uid_t)> released) {
    released_ = std::move(released);
  }

 private:
  Status charge(SessionEntry& entry);
  // Once it is charged for.
  void open(SessionEntry entry, const Answer<v1::AttachReply>& answer);
  // Reason::None is an orderly end. `answer` may be empty.
  void close(SessionId id, Reason reason, const std::string& why, Answer<v1::Empty> answer);

  ControlState& state_;
  KeptRings& kept_rings_;
  CommunicatorJoins& joins_;
  BufferCalls& buffers_;
  SessionGroups& groups_;
  std::unordered_set<std::shared_ptr<SessionEntry>> attaching_;  // wait for room
  FdChannel descriptors_;
  std::function<void(uid_t)> released_;
};

}  // namespace arcomm
