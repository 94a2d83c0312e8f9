// Which way an AllReduce between nodes takes, and why, beside what the others would send: for
// `arctl tune --explain SIZE --nodes N`. Any thread.
#pragma once

#include "daemon/plan/explain.h"
#include "daemon/plan/network/network_question.h"
#include "daemon/plan/network/ring_tiers.h"
#include "daemon/plan/network_policy.h"

namespace arcomm {

// What a ring between hosts has, of so much staging for all that a worker has under way.
RingRoom ring_room_of_host(std::uint64_t element_bytes, std::uint64_t staging_bytes);

// Nothing of it was measured: its times are 0. Precondition: question.nodes > 1.
Explanation explain_network(const NetworkQuestion& question, const NetworkPolicy& policy,
                            std::uint64_t staging_bytes);

}  // namespace arcomm
