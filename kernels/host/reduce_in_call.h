// Reductions that a caller's own process runs, of small operations whose ranks meet in its call:
// the bits are those of launch.h, for the code is the same. Compiled for one instruction set, since
// what chooses among several is a shared library, which libarclient must not need. Any thread;
// disjoint ranges at once.
#pragma once

#include <cstdint>

#include "kernels/args.h"

namespace arcomm::host {

// Whether this machine has the instructions; else nothing may be reduced here.
bool can_reduce_in_call();
// All elements, on this thread. Precondition: no codec, stage Whole.
void reduce_in_call(const AllReduceArgs& args);

// Copies what other cores are to read, and this one has no use for: from 1 KiB on around the
// caches, as a peer gets lines from memory in less time than from this core's cache, where they
// would have to be taken from the peer's before the next copy. Between two cores of an EPYC 9004
// with an L3 each: 1 KiB in 0.57 us and not 0.87, 64 KiB in 7 and not 35. `to`: aligned to 64
// bytes. In order with whatever this thread stores next. Between cores that share an L3 a plain
// copy is faster at every size: 1 KiB in 0.6 us and not 0.8 on a Xeon.
void copy_for_others(const void* from, void* to, std::uint64_t bytes);

}  // namespace arcomm::host
