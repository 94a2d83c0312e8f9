// How fast this machine copies: every core copies its part of a working set, with what memcpy does
// for that size. What an AllReduce must read and write, over this rate, is a floor for its time.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>

#include "tests/bench/peer_run.h"

namespace arcomm::bench {
namespace {

using Clock = std::chrono::steady_clock;

double copy_us(std::vector<std::byte>& to, const std::vector<std::byte>& from,
               std::uint32_t iterations) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t part = from.size() / cores;
  std::barrier gate(static_cast<std::ptrdiff_t>(cores) + 1);
  std::vector<std::thread> threads;
  for (unsigned core = 0; core < cores; ++core) {
    threads.emplace_back([&, core] {
      gate.arrive_and_wait();
      for (std::uint32_t i = 0; i < iterations; ++i) {
        std::memcpy(to.data() + core * part, from.data() + core * part, part);
        asm volatile("" : : "r"(to.data()) : "memory");
      }
      gate.arrive_and_wait();
    });
  }
  gate.arrive_and_wait();
  const auto start = Clock::now();
  gate.arrive_and_wait();
  const double us =
      std::chrono::duration<double, std::micro>(Clock::now() - start).count() / iterations;
  for (std::thread& thread : threads) thread.join();
  return us;
}

int run(int argc, char** argv) {
  const PeerOptions options = parse_peer_options(argc, argv);
  for (const std::uint64_t bytes : options.sizes) {
    const std::uint64_t working_set = bytes * static_cast<std::uint64_t>(options.ranks);
    std::vector<std::byte> from(working_set, std::byte{1}), to(working_set, std::byte{2});
    // Long enough that starting and stopping the threads does not count.
    const auto iterations = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>((1ull << 30) / working_set, 2, 20'000));
    std::vector<double> samples;
    for (std::uint32_t round = 0; round <= options.rounds; ++round) {
      const double us = copy_us(to, from, iterations);
      if (round > 0) samples.push_back(us);
    }
    print_samples("copy", "memcpy", options, bytes, samples, 0);
  }
  return 0;
}

}  // namespace
}  // namespace arcomm::bench

int main(int argc, char** argv) {
  return arcomm::bench::run(argc, argv);
}
