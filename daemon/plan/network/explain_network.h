// Which way an AllReduce between nodes takes, and why, beside what the others would send: for
// `arctl tune --explain SIZE --nodes N`. Any thread.
#pragma once

#include "daemon/plan/explain.h"
#include "daemon/plan/network/network_question.h"
#include "daemon/plan/network_policy.h"

namespace arcomm {

// Nothing of it was measured: its times are 0. Precondition: question.nodes > 1.
Explanation explain_network(const NetworkQuestion& question, const NetworkPolicy& policy);

}  // namespace arcomm
