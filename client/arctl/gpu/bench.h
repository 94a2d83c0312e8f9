// The parent's part of a benchmark over GPUs: it starts the ranks, has them measure how fast the
// GPUs copy to each other, then every size with every contender, and prints what comes. One thread.
#pragma once

#include "client/arctl/bench/bench_options.h"
#include "client/arctl/command_line/exit_code.h"
#include "client/arctl/command_line/invocation.h"

namespace arcomm::arctl {

// plan: of these options, on GPUs. Failure where a result is wrong, whoever's it is.
ExitCode bench_gpus(const Invocation& invocation, const BenchPlan& plan,
                    const BenchOptions& options);

}  // namespace arcomm::arctl
