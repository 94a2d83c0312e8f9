// What a hand-over through the rings costs: a request to another process and its completion back,
// both sides spinning on a core of their own, beside a bare cache line that is passed there and
// back by the same two processes. The two are measured in turns, so that they see the same machine.
// Prints text and, last, one JSON line.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "proto/ring/segment.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace arcomm {
namespace {

constexpr int kTurns = 40;
constexpr int kPerTurn = 5000;
constexpr std::uint32_t kSlots = 256;

enum class Phase : std::uint32_t { PingPong, Rings, Over };

struct Lines {
  alignas(128) std::atomic<std::uint64_t> ping;
  alignas(128) std::atomic<std::uint64_t> pong;
  alignas(128) std::atomic<Phase> phase;
};

std::uint64_t ticks() {
#if defined(__x86_64__)
  unsigned cpu;
  return __rdtscp(&cpu);  // waits for what came before it
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

double ns_per_tick() {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t first = ticks();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(50)) {
  }
  const std::uint64_t last = ticks();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
             .count() /
         static_cast<double>(last - first);
}

bool pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return ::sched_setaffinity(0, sizeof(set), &set) == 0;
}

// The daemon's side: answers both until the phase says that it is over.
[[noreturn]] void serve(int segment_fd, Lines& lines) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pin_to(1);
  // The parent's mapping is not inherited, on purpose: this side opens the segment as any process
  // would.
  Result<ring::Segment> segment = ring::Segment::open(UniqueFd(segment_fd));
  if (!segment) std::_Exit(1);
  ring::Consumer<ring::WorkRequest> requests(segment->requests());
  ring::Producer<ring::Completion> completions(segment->completions());
  std::uint64_t seen = 0;
  for (;;) {
    switch (lines.phase.load(std::memory_order_acquire)) {
      case Phase::PingPong:
        if (const std::uint64_t ping = lines.ping.load(std::memory_order_acquire); ping != seen) {
          seen = ping;
          lines.pong.store(ping, std::memory_order_release);
        }
        break;
      case Phase::Rings: {
        ring::WorkRequest request;
        if (requests.pop(request) == ring::Pop::Done) {
          ring::Completion completion;
          completion.ticket = request.ticket;
          if (completions.push(completion) != ring::Push::Done) std::_Exit(1);
        }
        break;
      }
      case Phase::Over:
        std::_Exit(0);
    }
  }
}

struct Figures {
  double p50_ns, p99_ns;
};

Figures figures_of(std::vector<std::uint64_t>& samples, double scale) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double fraction) {
    return static_cast<double>(samples[static_cast<std::size_t>(
               fraction * static_cast<double>(samples.size() - 1))]) *
           scale;
  };
  return {at(0.5), at(0.99)};
}

int run() {
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    std::fprintf(stderr, "ring_bench: needs two cores, and this machine has one\n");
    return 0;
  }
  Result<ring::Segment> segment = ring::Segment::create(kSlots, SessionId{1, 1});
  void* page =
      ::mmap(nullptr, sizeof(Lines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!segment || page == MAP_FAILED) {
    std::fprintf(stderr, "ring_bench: cannot set up shared memory\n");
    return 1;
  }
  Lines& lines = *new (page) Lines{};
  const pid_t server = ::fork();
  if (server == 0) serve(segment->fd(), lines);
  pin_to(0);
  const double scale = ns_per_tick();

  ring::Producer<ring::WorkRequest> requests(segment->requests());
  ring::Consumer<ring::Completion> completions(segment->completions());
  std::vector<std::uint64_t> bare, rings;
  std::uint64_t number = 0;
  // The first turn warms caches and the branch predictor and is not counted.
  for (int turn = 0; turn <= kTurns; ++turn) {
    lines.phase.store(Phase::PingPong, std::memory_order_release);
    for (int i = 0; i < kPerTurn; ++i) {
      const std::uint64_t start = ticks();
      lines.ping.store(++number, std::memory_order_release);
      while (lines.pong.load(std::memory_order_acquire) != number) {
      }
      if (turn > 0) bare.push_back(ticks() - start);
    }
    lines.phase.store(Phase::Rings, std::memory_order_release);
    for (int i = 0; i < kPerTurn; ++i) {
      ring::WorkRequest request;
      request.ticket = static_cast<std::uint64_t>(i) + 1;
      const std::uint64_t start = ticks();
      if (requests.push(request) != ring::Push::Done) return 1;
      ring::Completion completion;
      while (completions.pop(completion) != ring::Pop::Done) {
      }
      if (turn > 0) rings.push_back(ticks() - start);
      if (completion.ticket != request.ticket) {
        std::fprintf(stderr, "ring_bench: completion %d carries another ticket\n", i);
        return 1;
      }
    }
  }
  lines.phase.store(Phase::Over, std::memory_order_release);
  ::waitpid(server, nullptr, 0);

  const Figures line = figures_of(bare, scale), ring = figures_of(rings, scale);
  const double ratio = ring.p50_ns / line.p50_ns;
  std::printf("                                   p50 ns    p99 ns\n");
  std::printf("cache line there and back        %8.0f  %8.0f\n", line.p50_ns, line.p99_ns);
  std::printf("request and completion by rings  %8.0f  %8.0f   target 250, 500\n", ring.p50_ns,
              ring.p99_ns);
  std::printf("ratio of the medians             %8.2f             target 1.50\n", ratio);
  std::printf(
      "{\"bench\":\"ring\",\"line_p50_ns\":%.1f,\"line_p99_ns\":%.1f,\"ring_p50_ns\":%.1f,\"ring_"
      "p99_ns\":%.1f,"
      "\"ratio\":%.3f}\n",
      line.p50_ns, line.p99_ns, ring.p50_ns, ring.p99_ns, ratio);
  return 0;
}

}  // namespace
}  // namespace arcomm

int main() {
  return arcomm::run();
}
