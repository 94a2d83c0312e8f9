// Ranks that wait for each other on two communicators that span nodes, as far as it is known here.
// Thread: the worker's.
#pragma once

#include <cstdint>

#include "daemon/comm/communicator.h"

namespace arcomm {

// Does a process that `seq` of `one` misses wait in `other` for a process that waits there?
// Processes are the same when node and pid are; one whose pid is not known is nobody's equal.
bool cross_between_nodes(const Communicator& one, std::uint64_t seq, const Communicator& other);

}  // namespace arcomm
