// Which way an AllReduce between nodes takes, and why, beside what the others would send: for
// `arctl tune --explain SIZE --nodes N`. Any thread.
#pragma once

#include "daemon/plan/explanation.h"
#include "daemon/plan/network/network_question.h"
#include "daemon/plan/network/network_tuning.h"
#include "daemon/plan/network_policy.h"

namespace arcomm {

// Its times are what the slowest measured link would need by latency and throughput alone, and 0
// where none was measured. Precondition: question.nodes > 1.
Explanation explain_network(const NetworkQuestion& question, const NetworkPolicy& policy,
                            const NetworkTuning& measured = {});
// The same between GPUs, of which a policy says the lanes alone. Its runner-up is what is chosen:
// there is no other.
Explanation explain_network_of_gpus(const NetworkQuestion& question, const NetworkPolicy& policy,
                                    const NetworkTuning& measured = {});

}  // namespace arcomm
