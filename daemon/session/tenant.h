// One user of this worker, whatever the number of his sessions: what quotas of operations are
// counted against. Thread: the worker's. Shared by the user's sessions; goes with the last of them.
#pragma once

#include <cstdint>

namespace arcomm {

struct Tenant {
  std::uint64_t in_flight = 0;  // operations admitted and not yet completed
};

}  // namespace arcomm
