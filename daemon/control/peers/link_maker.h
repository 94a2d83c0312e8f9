// Makes the links of this daemon's workers to the workers of the same names of other daemons, when
// a communicator needs them. Thread: the control loop.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "daemon/control/peers/peer_messenger.h"
#include "proto/status.h"

namespace arcomm {

class LinkMaker {
 public:
  using Clock = std::chrono::steady_clock;
  using Done = std::function<void(Status)>;

  virtual ~LinkMaker() = default;

  // done, on the control loop and exactly once, never from inside of the call: the link between
  // `worker` ("host:0") here and there stands, and this daemon's worker has it; or why it could not
  // be made by then, naming the peer. Of a pair the daemon whose address text is smaller connects;
  // the other one waits for it here, so both sides must ask. Several may ask for the same link.
  virtual void ensure(const PeerNode& peer, const std::string& worker, Clock::time_point deadline,
                      Done done) = 0;
};

}  // namespace arcomm
