// What the limits are and what is used of each, as operators see it. Thread: the control loop.
#pragma once

#include <functional>

#include "daemon/control/node_control.h"
#include "daemon/memory/fair_share.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

// What is shared out before a call is one; nothing where there is no gate, or no server.
struct AccessShares {
  const FairShare* connections = nullptr;
  std::function<FairShare()> calls = {};
};
void add_limits(const NodeControl& control, const AccessShares& access, v1::StatusReply& status);

}  // namespace arcomm
