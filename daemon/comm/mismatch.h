// What two ranks that should do the same ask for differently, as a failure that names both. Any
// thread; allocates nothing.
#pragma once

#include "daemon/plan/failure.h"
#include "daemon/plan/operation.h"
#include "proto/types.h"

namespace arcomm {

// FailedPrecondition/Mismatch, `late` being the culprit: "rank 1 and rank 0 differ: count 7 and 8,
// op max and sum".
Failure mismatch_of(Rank late, const Signature& lates, Rank first, const Signature& firsts);

}  // namespace arcomm
