// `arctl net`: other daemons as this one sees them. Thread: the control loop.
#pragma once

#include <vector>

#include "daemon/control/peers/peers.h"
#include "daemon/exec/snapshots.h"
#include "proto/arcommd/v1/control.pb.h"
#include "proto/status.h"

namespace arcomm {

// views: one for each worker, in order.
v1::NetReply net_status(Peers& peers, const std::vector<Result<WorkerSnapshot>>& views);

}  // namespace arcomm
