// One rank of a benchmark over GPUs: what `arctl rank` does in a process of its own, on one GPU,
// until the parent has no more cases.
#pragma once

#include <string>

#include "client/arctl/bench/rank_board.h"
#include "client/arctl/command_line/exit_code.h"

namespace arcomm::arctl {

// The GPU, NCCL and timeouts come by the board. Errors are left there for the parent. May end the
// process itself, with the code that it would return.
ExitCode run_gpu_rank(const RankBoard& board, Rank rank, const std::string& runtime_dir);

}  // namespace arcomm::arctl
