// `arctl trace`: what flight recorders remember, as operators ask for it. Thread: any; where it
// says so the control loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/control/calls/communicators/in_call_exchanges.h"
#include "daemon/telemetry/flight_recorder.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

namespace v1 = arcommd::v1;

// Those that `request` asks for, of the log of one worker or, one after the other, of several.
// algorithm_name: of the number that a record holds.
v1::TraceReply trace_reply(FlightLog log, const v1::TraceRequest& request, bool are_of_several,
                           const std::function<std::string(std::uint8_t)>& algorithm_name);

// What ran within the ranks' calls of the communicators that are there: no record was made of it.
// On the control loop.
void add_in_call(const InCallExchanges& in_call, v1::TraceReply& reply);

}  // namespace arcomm
