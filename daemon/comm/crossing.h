// Ranks that wait for each other on two communicators, here and on other nodes as far as it is
// known here. Thread: the worker's.
#pragma once

#include <cstdint>

#include "daemon/comm/communicator.h"

namespace arcomm {

// What the ranks of `mine` are told: it and `theirs` wait for each other. whose: the rank that is
// waited for, if one is to be named.
Failure describe_crossing(const Communicator& mine, const Communicator& theirs, Rank whose);

// Does a session of this node that `arrival` of `one` misses wait in `other` for one that waits
// there?
bool cross_here(const Communicator& one, const Arrival& arrival, const Communicator& other);

// Does a process that `seq` of `one` misses wait in `other` for a process that waits there?
// Processes are the same when node and pid are; one whose pid is not known is nobody's equal.
bool cross_between_nodes(const Communicator& one, std::uint64_t seq, const Communicator& other);

}  // namespace arcomm
