// One rank process of a system that is compared: when it starts together with the others, what it
// times, and what rank 0 prints of all. Thread: a rank's own; the board is in shared memory.
#pragma once

#include <sched.h>
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

// The greatest of what the ranks pass. Collective.
inline double slowest_of(const PeerRank& run, double us) {
  run.board.samples_of(run.rank)[0] = us;
  run.meet();
  double slowest = 0;
  for (Rank rank = 0; rank < run.options.ranks; ++rank)
    slowest = std::max(slowest, run.board.samples_of(rank)[0]);
  run.meet();
  return slowest;
}

// One call's time on the slowest rank, known to all ranks.
inline double pilot_us(const PeerRank& run, const std::function<void()>& once) {
  using Clock = std::chrono::steady_clock;
  run.meet();
  const auto start = Clock::now();
  once();
  return slowest_of(run, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
}

// `once` leaves the result in run.recv. Every rank's means go to the board; rank 0 prints the
// slowest. An algorithm that is far behind `best_pilot` at this size is left out: only the fastest
// counts.
inline void measure(const PeerRank& run, const char* algorithm, std::uint64_t bytes,
                    double& best_pilot, const std::function<void()>& once) {
  constexpr double kWarmUpUs = 100'000;
  const std::uint64_t count = bytes / size_of(run.options.dtype);
  const arctl::Pattern pattern(run.options.dtype, ReduceOp::Sum, run.options.ranks,
                               run.options.codec);
  const double pilot = std::min(pilot_us(run, once), pilot_us(run, once));
  if (pilot > 4 * best_pilot) return;
  best_pilot = std::min(best_pilot, pilot);
  // As many as the others do, or a tenth of a second: processes that sleep between messages anyway.
  // All ranks have the same pilot.
  const auto within = static_cast<std::uint32_t>(std::clamp(kWarmUpUs / pilot, 5.0, 1e6));
  for (std::uint32_t i = 0; i < std::min(run.options.warmup_of(bytes), within); ++i) once();
  // In-place algorithms run on zeros while they are timed, or the sums would grow without bound.
  std::memset(run.recv, 0, bytes);
  std::vector<double> samples;
  for (std::uint32_t round = 0; round < run.options.rounds; ++round) {
    run.meet();
    samples.push_back(
        round_us(run.options, bytes, once, [&run](double us) { return slowest_of(run, us); }));
  }
  pattern.fill(run.recv, count, run.rank);  // what in-place algorithms reduce
  run.meet();
  once();
  run.board.page().slots[run.rank].wrong = pattern.wrong(run.recv, count);
  run.meet();
  if (run.rank == 0) {
    std::uint64_t wrong = 0;
    for (Rank rank = 0; rank < run.options.ranks; ++rank)
      wrong += run.board.page().slots[rank].wrong;
    print_samples(run.system, algorithm, run.options, bytes, samples, wrong);
  }
  run.meet();
}

inline int cores_to_use() {
  cpu_set_t all;
  return ::sched_getaffinity(0, sizeof(all), &all) == 0 ? CPU_COUNT(&all) : 0;
}

// To the rank-th of the cores that this process may use.
inline void bind_to_core(Rank rank) {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  if (::sched_getaffinity(0, sizeof(all), &all) != 0) return;
  int before = rank;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all) && before-- == 0) CPU_SET(cpu, &one);
  }
  (void)::sched_setaffinity(0, sizeof(one), &one);
}

// Forks a process for each rank, before any thread exists, and waits for all: 0, or 1 where one
// failed.
inline int run_ranks(const char* name, const PeerOptions& options, const arctl::RankBoard& board,
                     const std::function<void(Rank)>& act) {
  std::vector<pid_t> ranks;
  const bool binds = options.binds_to_cores && options.ranks == 2 && cores_to_use() >= 2;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (binds) bind_to_core(rank);
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
