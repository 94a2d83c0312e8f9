// One rank of a bench or self-test: what `arctl rank` does in a process of its own until the parent
// has no more cases.
#pragma once

#include "client/arctl/bench/rank_board.h"
#include "client/arctl/command_line/exit_code.h"

namespace arcomm::arctl {

// runtime_dir and timeouts come by the environment and the board. Errors are left on the board for
// the parent.
ExitCode run_rank(const RankBoard& board, Rank rank, const std::string& runtime_dir);

}  // namespace arcomm::arctl
