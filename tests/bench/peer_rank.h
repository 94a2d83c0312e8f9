// One rank process of a system that is compared: when it starts together with the others, what it
// times, and what rank 0 prints of all. Thread: a rank's own; the board is in shared memory.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <vector>

#include "client/arctl/bench/rank_board.h"
#include "tests/bench/peer_run.h"

namespace arcomm::bench {

struct PeerRank {
  const char* system;
  const PeerOptions& options;
  const arctl::RankBoard& board;
  Rank rank;
  std::byte* send;
  std::byte* recv;

  void meet() const {
    if (!board.meet(std::chrono::steady_clock::now() + std::chrono::seconds(60)).ok())
      std::_Exit(1);
  }
};

// One call's time on the slowest rank, known to all ranks.
inline double pilot_us(const PeerRank& run, const std::function<void()>& once) {
  using Clock = std::chrono::steady_clock;
  run.meet();
  const auto start = Clock::now();
  once();
  run.board.samples_of(run.rank)[0] =
      std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  run.meet();
  double slowest = 0;
  for (Rank rank = 0; rank < run.options.ranks; ++rank) {
    slowest = std::max(slowest, run.board.samples_of(rank)[0]);
  }
  run.meet();
  return slowest;
}

// `once` leaves the result in run.recv. Every rank's means go to the board; rank 0 prints the
// slowest. An algorithm that is far behind `best_pilot` at this size is left out: only the fastest
// counts.
inline void measure(const PeerRank& run, const char* algorithm, std::uint64_t bytes,
                    double& best_pilot, const std::function<void()>& once) {
  using Clock = std::chrono::steady_clock;
  constexpr double kWarmUpUs = 100'000;
  const std::uint32_t iterations = run.options.iterations_of(bytes);
  const std::uint64_t count = bytes / size_of(run.options.dtype);
  const arctl::Pattern pattern(run.options.dtype, ReduceOp::Sum, run.options.ranks,
                               run.options.codec);
  const double pilot = std::min(pilot_us(run, once), pilot_us(run, once));
  if (pilot > 4 * best_pilot) return;
  best_pilot = std::min(best_pilot, pilot);
  // As many as the others do, or a tenth of a second: processes that sleep between messages anyway.
  // All ranks have the same pilot.
  const auto within = static_cast<std::uint32_t>(std::clamp(kWarmUpUs / pilot, 5.0, 1e6));
  for (std::uint32_t i = 0; i < std::min(arctl::default_warmup(bytes), within); ++i) once();
  // In-place algorithms run on zeros while they are timed, or the sums would grow without bound.
  std::memset(run.recv, 0, bytes);
  for (std::uint32_t round = 0; round < run.options.rounds; ++round) {
    run.meet();
    const auto start = Clock::now();
    for (std::uint32_t i = 0; i < iterations; ++i) once();
    run.board.samples_of(run.rank)[round] =
        std::chrono::duration<double, std::micro>(Clock::now() - start).count() / iterations;
  }
  pattern.fill(run.recv, count, run.rank);  // what in-place algorithms reduce
  run.meet();
  once();
  run.board.page().slots[run.rank].wrong = pattern.wrong(run.recv, count);
  run.meet();
  if (run.rank == 0) {
    std::vector<double> slowest(run.options.rounds, 0.0);
    std::uint64_t wrong = 0;
    for (Rank rank = 0; rank < run.options.ranks; ++rank) {
      for (std::size_t i = 0; i < slowest.size(); ++i)
        slowest[i] = std::max(slowest[i], run.board.samples_of(rank)[i]);
      wrong += run.board.page().slots[rank].wrong;
    }
    print_samples(run.system, algorithm, run.options, bytes, slowest, wrong);
  }
  run.meet();
}

// Forks a process for each rank, before any thread exists, and waits for all: 0, or 1 where one
// failed.
inline int run_ranks(const char* name, const PeerOptions& options, const arctl::RankBoard& board,
                     const std::function<void(Rank)>& act) {
  std::vector<pid_t> ranks;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        act(rank);
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s: rank %d: %s\n", name, rank, failure.what());
        board.fail(rank, error(ErrorCode::Internal, Reason::None, failure.what()));
        std::_Exit(1);
      }
      std::_Exit(0);
    }
    ranks.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : ranks) {
    int how = 0;
    ::waitpid(pid, &how, 0);
    if (how != 0) worst = 1;
  }
  return worst;
}

}  // namespace arcomm::bench
