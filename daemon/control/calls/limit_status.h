// What the limits are and what is used of each, as operators see it. Thread: the control loop.
#pragma once

#include "daemon/control/node_control.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

// connections: null where there is no gate.
void add_limits(const NodeControl& control, const FairShare* connections, v1::StatusReply& status);

}  // namespace arcomm
