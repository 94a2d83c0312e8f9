// What two ranks that should do the same ask for differently, or run in different orders, as a
// failure that names both. Any thread; allocates nothing.
#pragma once

#include <string_view>

#include "daemon/plan/failure.h"
#include "daemon/plan/operation.h"
#include "proto/types.h"

namespace arcomm {

// A rank as it is named; with its node where it may be on another one.
struct NamedRank {
  NamedRank(Rank of, std::string_view on = {}) : rank(of), node(on) {}  // NOLINT
  Rank rank = kNoRank;
  std::string_view node;
};

// FailedPrecondition/Mismatch, `late` being the culprit: "rank 1 and rank 0 differ: count 7 and 8,
// op max and sum", "rank 1 (node-b) and rank 0 (node-a) differ: count 7 and 8".
Failure mismatch_of(NamedRank late, const Signature& lates, NamedRank first,
                    const Signature& firsts);

// FailedPrecondition/Reordered, of two identities (proto/gpu/captured_identity.h): "rank 1 runs
// what it captured as number 3, rank 0 what no graph holds".
Failure reordered(NamedRank late, std::uint32_t lates, NamedRank first, std::uint32_t firsts);

}  // namespace arcomm
