// What an AllReduce sends between nodes: steps, messages and bytes, counted off the schedules
// themselves. For tests, --explain and the simulation. Pure; any thread; allocates nothing.
#pragma once

#include <cstdint>

#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_question.h"

namespace arcomm {

// Of one node. A message is what goes to one node in one step, whatever chunks it has; an empty one
// is not sent.
struct NetworkLoad {
  std::uint64_t steps = 0;  // that wait for each other
  std::uint64_t messages_sent = 0, messages_received = 0;
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  friend bool operator==(const NetworkLoad&, const NetworkLoad&) = default;
};

// bidirectional: of a ring's all-gather. Precondition: node < question.nodes.
NetworkLoad network_load(const NetworkQuestion& question, const NetworkChoice& choice,
                         bool bidirectional, std::uint32_t node);

}  // namespace arcomm
