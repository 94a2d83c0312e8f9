#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "client/arctl/bench/rank_worker.h"
#include "client/arctl/gpu/worker.h"
#include "client/arctl/verbs.h"

namespace arcomm::arctl {
namespace {

struct RankOptions {
  int board = -1;
  int rank = -1;
  int parent = 0;
};

ExitCode run(const Invocation& invocation, const RankOptions& options) {
  // A rank must not outlive the process that reads its results; the second look covers a parent
  // that went already.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != options.parent) return ExitCode::Failure;
  Result<RankBoard> board = RankBoard::open(UniqueFd(options.board));
  if (!board) return report(board.error());
  if (options.rank < 0 || options.rank >= board->page().ranks) return ExitCode::Usage;
  return board->page().device == RankDevice::Gpu
             ? run_gpu_rank(*board, options.rank, invocation.runtime_dir)
             : run_rank(*board, options.rank, invocation.runtime_dir);
}

}  // namespace

void add_rank(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("rank", "One rank process of `check` and `bench`")->group("");
  auto options = std::make_shared<RankOptions>();
  verb->add_option("--board", options->board)->required();
  verb->add_option("--rank", options->rank)->required();
  verb->add_option("--parent", options->parent)->required();
  verb->callback([&invocation, options] {
    invocation.action = [&invocation, options] { return run(invocation, *options); };
  });
}

}  // namespace arcomm::arctl
