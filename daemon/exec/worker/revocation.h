// What ends a communicator's operations, and who hears of it: a call of one rank that was refused,
// a failure on a path that the worker does not run itself, a communicator that is revoked.
// Thread: the worker's. None of it is on the way of an operation that goes well.
#pragma once

#include <cstdint>

#include "daemon/exec/worker/worker_state.h"

namespace arcomm {

// The other ranks hear why this one's call was refused: nobody waits for it until the deadline.
void refuse_on_all_ranks(WorkerState& state, const Admitted& refused, std::uint64_t now_ns);

// Counts and records what failed in-stream or at the resident kernel, and revokes its communicator.
void note_path_failure(WorkerState& state, const PathFailure& failed, std::uint64_t now_ns);

// The operators and the control thread hear of it: a metric, a line of the log, an event.
void tell_revoked(WorkerState& state, const Communicator& communicator);

}  // namespace arcomm
