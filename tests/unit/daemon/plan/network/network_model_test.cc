// The model that the simulation prints is what it says: known times for cases that are worked out
// by hand.
#include "tests/bench/network/network_model.h"

#include <gtest/gtest.h>

namespace arcomm::bench {
namespace {

// 1 GB/s, a latency of 10 us, and nothing else costs anything.
NetworkCosts plain() {
  return {.latency_us = 10,
          .gigabytes = 1,
          .message_us = 0,
          .combine_gigabytes = 1e9,
          .window_bytes = 1 << 30};
}
constexpr std::uint64_t kBytes = 64 * 1024 * 60;  // whole lines for 2 to 6 nodes
NetworkQuestion question(std::uint32_t nodes) {
  return {.count = kBytes / 4, .nodes = nodes};
}
double us(std::uint64_t bytes) {
  return static_cast<double>(bytes) * 1e-3;
}
NetworkChoice by(NetworkAlgorithm algorithm) {
  return {.algorithm = algorithm, .partials = DType::Float32, .why = {}};
}

TEST(NetworkModel, AnExchangeTakesALatencyAndWhatEverybodySends) {
  for (const std::uint32_t nodes : {2u, 3u, 5u}) {
    EXPECT_NEAR(simulate(question(nodes), by(NetworkAlgorithm::Exchange), {}, plain()),
                10 + us((nodes - 1) * kBytes), 0.1);
  }
}

TEST(NetworkModel, DirectTakesTwoLatenciesAtMostAndTwiceTheOthersShards) {
  for (const std::uint32_t nodes : {2u, 3u, 4u, 6u}) {
    const double sent = us(2 * (nodes - 1) * (kBytes / nodes));
    const double took = simulate(question(nodes), by(NetworkAlgorithm::Direct), {}, plain());
    EXPECT_GE(took, 10 + sent - 0.1);
    EXPECT_LE(took, 20 + sent + 0.1);
  }
}

TEST(NetworkModel, AllThatSendToOneNodeFirstAreSlower) {
  NetworkCosts together = plain();
  together.staggered = false;
  const auto took = [](const NetworkCosts& costs) {
    return simulate(question(6), by(NetworkAlgorithm::Direct), {}, costs);
  };
  EXPECT_GT(took(together), 1.2 * took(plain()));
}

// Small shards wait for a latency in each step; large ones hide it behind what is under way.
TEST(NetworkModel, ARingTakesALatencyForEachStepOrWhatItSends) {
  const NetworkQuestion small{.count = 16 * 6, .nodes = 6};
  const auto took = [&](const NetworkQuestion& asked, bool both) {
    return simulate(asked, by(NetworkAlgorithm::Ring),
                    {.chunk_bytes = 64, .slots = 1 << 20, .bidirectional = both}, plain());
  };
  EXPECT_NEAR(took(small, false), 10 * (10 + us(64)), 0.1);
  EXPECT_NEAR(took(small, true), 8 * (10 + us(64)) + us(2 * 64), 0.2);
  const NetworkQuestion large{.count = std::uint64_t{16} * 6 * 100'000, .nodes = 6};
  const double sent = us(std::uint64_t{10} * 64 * 100'000);
  EXPECT_GE(took(large, false), sent);
  EXPECT_LE(took(large, false), 1.01 * sent);
}

TEST(NetworkModel, TooLittleUnderWayIsSlow) {
  NetworkCosts costs = plain();
  costs.window_bytes = 1000;  // in 20 us: 50 MB/s
  EXPECT_NEAR(simulate(question(2), by(NetworkAlgorithm::Exchange), {}, costs),
              10 + 20 * us(kBytes), 1);
}

TEST(NetworkModel, NothingIsFasterThanTheFloor) {
  for (const std::uint32_t nodes : {2u, 3u, 6u, 17u}) {
    for (const std::uint64_t count : {1000ull, 1'000'000ull}) {
      const NetworkQuestion asked{.count = count, .nodes = nodes};
      for (const NetworkAlgorithm algorithm : kNetworkAlgorithms) {
        EXPECT_GE(simulate(asked, by(algorithm), {.chunk_bytes = 4096, .slots = 64}, plain()),
                  floor_us(asked, plain()) * 0.99);
      }
    }
  }
}

}  // namespace
}  // namespace arcomm::bench
