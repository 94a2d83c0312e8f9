// What a call costs its caller: host microseconds of arcAllReduce itself, with pointers that it has
// seen before and with pointers that it has not. Of the process's options; what is wrong ends the
// process (die).
#pragma once

#include "tests/gpu/service/client/client_comm.h"

namespace arcomm::gpu {

// For each of the options' sizes but the largest, in whose memory the pointers lie. Rank 0 prints a
// row for each: medians, and how much more a new pointer costs.
void time_calls(ClientComm& comm);

}  // namespace arcomm::gpu
