// What two ranks that should do the same ask for differently, or run in different orders, as a
// failure that names both. Any thread; allocates nothing.
#pragma once

#include "daemon/plan/failure.h"
#include "daemon/plan/operation.h"
#include "proto/types.h"

namespace arcomm {

// FailedPrecondition/Mismatch, `late` being the culprit: "rank 1 and rank 0 differ: count 7 and 8,
// op max and sum".
Failure mismatch_of(Rank late, const Signature& lates, Rank first, const Signature& firsts);

// FailedPrecondition/Reordered, of two identities (proto/captured_identity.h): "rank 1 runs what it
// captured as number 3, rank 0 what no graph holds".
Failure reordered(Rank late, std::uint32_t lates, Rank first, std::uint32_t firsts);

}  // namespace arcomm
