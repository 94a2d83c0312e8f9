// What must end as an error, on every rank: ranks that ask for different things, that replay
// different graphs, and a rank that does not come. Of the process's options; what is not as it must
// be ends the process (die).
#pragma once

#include "tests/gpu/service/client/client_comm.h"

namespace arcomm::gpu {

// For each of the options' sizes. The communicator is rebuilt after each fault, and serves at the
// end.
void expect_faults(ClientComm& comm);

}  // namespace arcomm::gpu
