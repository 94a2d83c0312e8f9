// What the machine, and the service's place on it, can bear of what control hands out: where an
// operator says nothing (quota.node_*: 0), the limits of the whole node come from it. Any thread;
// read_machine reads files, so not on the control loop.
#pragma once

#include <cstdint>

#include "config/settings.h"

namespace arcomm {

struct MachineFacts {
  std::uint64_t descriptors = 0;   // RLIMIT_NOFILE of this process
  std::uint64_t mappings = 0;      // vm.max_map_count
  std::uint64_t memory_bytes = 0;  // MemTotal, or the limit of our control group
};

MachineFacts read_machine();

// `asked`, with the node's limits that are 0 filled in.
Settings::Quota fill_node_limits(Settings::Quota asked, const MachineFacts& machine);

}  // namespace arcomm
