// `arctl bench --network`: asks the daemon what a step between nodes costs, and prints it. One
// thread.
#pragma once

#include <string>
#include <vector>

#include "client/arctl/command_line/exit_code.h"
#include "client/arctl/command_line/invocation.h"

namespace arcomm::arctl {

// To these addresses of net.peers; none: to all of them.
ExitCode bench_network(const Invocation& invocation, const std::vector<std::string>& peers);

}  // namespace arcomm::arctl
