// Faults that the ranks make by themselves, one after the other for all sizes of the options; each
// is followed by AllReduces with the right sums, and then says "case <number in the fault matrix>:
// <what was seen>". What is not as it must be ends the process (die).
#pragma once

namespace arcomm::gpu {

// Two communicators, called in opposite order on one stream of every rank: each rank's kernel waits
// for one that waits for it. By abort both end at once (fault 39), by themselves at the deadline,
// and are reported as crossed (fault 22).
enum class Ending { Abort, Deadline };
void cross(Ending ending);

// The last rank does not come, to a call and to a replay: the others are told who, at the deadline,
// and a kernel behind it gets every SM (faults 21 and 38).
void miss();

// More memory than the GPU has, 200 times (fault 30).
void hoard();

// The last rank frees its memory of cudaMalloc's while what the daemon launches on it waits for the
// other ranks: the sums are right, or all are told, and the GPUs serve on.
void free_early();

}  // namespace arcomm::gpu
