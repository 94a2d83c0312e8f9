// The launch table of a communicator that spans nodes (launch_table_builder.h has those of one
// node): which operations the daemon takes, and which codecs pay. Pure: the same on all nodes,
// which know where the ranks are and the policy alike.
#pragma once

#include "daemon/plan/network/coding_between_nodes.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network_policy.h"
#include "proto/gpu/launch_table.h"

namespace arcomm {

// Of ranks on GPUs. No client's kernel and no grid gets at all of them: the daemon launches
// everything, what has a codec in a row of its own, where the policy allows it.
LaunchTable make_launch_table_between_nodes(const RanksOnNodes& where, NetworkAlgorithm algorithm,
                                            const NetworkPolicy& policy = {});
// Of ranks on hosts: it says only which codecs pay.
LaunchTable make_launch_table_between_hosts(const RanksOnNodes& where, const NetworkPolicy& policy);

}  // namespace arcomm
