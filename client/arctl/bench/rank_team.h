// Starts the rank processes of a bench or a self-test and hands them one case at a time.
// Ownership: the team ends its processes when it goes, by force if it must. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "client/arctl/bench/bench_case.h"
#include "client/arctl/bench/rank_board.h"
#include "proto/status.h"

namespace arcomm::arctl {

struct TeamOptions {
  int ranks = 2;
  std::uint64_t buffer_bytes = 0;
  RankMemory memory = RankMemory::Shared;
  RankDevice device = RankDevice::Host;
  std::vector<int> gpus;                      // by rank, CUDA's numbers
  std::string nccl;                           // the file to load NCCL from
  std::string data_file;                      // of recorded data
  std::string runtime_dir;                    // "" means the environment's
  std::uint64_t most_in_call_bytes = 0;       // on the host, to be asked for; 0: nothing is
  std::chrono::milliseconds timeout{30'000};  // of one operation
};

class RankTeam {
 public:
  static Result<RankTeam> start(const TeamOptions& options);
  RankTeam(RankTeam&&) = default;
  RankTeam& operator=(RankTeam&&) = delete;
  ~RankTeam();

  // Returns when all ranks have run it; fails when a rank failed or died, or when no rank moved for
  // a timeout.
  Result<Measured> run(const BenchCase& what);
  // How the daemon's views name the ranks' communicator: the beginning of its unique id.
  std::string communicator() const;
  // Lets the ranks leave their communicator and waits for them.
  Status finish();

 private:
  RankTeam(RankBoard board, TeamOptions options)
      : board_(std::move(board)), options_(std::move(options)) {}

  Status spawn();
  Status watch_until_reported(std::uint32_t target, std::chrono::milliseconds patience);
  Error first_failure() const;
  // The error of a rank process that is gone without a word, if there is one.
  Status look_for_dead();
  std::uint64_t heartbeats() const;
  bool reap_all(std::chrono::milliseconds patience);  // leaves in ended_ how the first failed

  RankBoard board_;
  TeamOptions options_;
  std::vector<pid_t> pids_;  // by rank; 0 once reaped
  Status ended_;             // of those that were told to
  std::uint32_t cases_ = 0;
};

}  // namespace arcomm::arctl
