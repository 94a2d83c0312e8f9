// `arctl comms`: communicators as operators see them. Thread: the control loop.
#pragma once

#include <chrono>

#include "daemon/control/calls/communicators/in_call_exchanges.h"
#include "daemon/control/rendezvous/rendezvous.h"
#include "daemon/exec/snapshots.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

namespace v1 = arcommd::v1;

void fill_status(const CommunicatorSnapshot& communicator, v1::CommunicatorStatus& status);
// What its ranks run without the worker; the status has all else.
void fill_status(const InCallExchange& in_call, v1::CommunicatorStatus& status);
void fill_status(const Rendezvous::Forming& forming, std::chrono::steady_clock::time_point now,
                 v1::CommunicatorStatus& status);

}  // namespace arcomm
