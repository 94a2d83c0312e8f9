#include "daemon/plan/network/network_load.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/plan/network/network_shards.h"
#include "tests/unit/daemon/plan/network/node_counts.h"

namespace arcomm {
namespace {

// A count that all of these divide, in whole cache lines of float32.
constexpr std::uint64_t kCount = std::uint64_t{16} * 1024 * 3 * 3 * 5 * 7 * 11 * 13 * 17;

NetworkChoice by(NetworkAlgorithm algorithm, DType partials = DType::Float32) {
  return {.algorithm = algorithm, .partials = partials, .why = {}};
}

TEST(NetworkLoad, AnExchangeSendsEverythingToEverybodyInOneStep) {
  for (const std::uint64_t nodes : kNodes) {
    const NetworkQuestion question{.count = kCount, .nodes = static_cast<std::uint32_t>(nodes)};
    const NetworkLoad load = network_load(question, by(NetworkAlgorithm::Exchange), false, 0);
    EXPECT_EQ(load.steps, 1U);
    EXPECT_EQ(load.messages_sent, nodes - 1);
    EXPECT_EQ(load.bytes_sent, (nodes - 1) * kCount * 4);
    EXPECT_EQ(load.bytes_received, load.bytes_sent);
  }
}

TEST(NetworkLoad, DirectSendsTwiceWhatIsNotItsOwnInTwoSteps) {
  for (const std::uint64_t nodes : kNodes) {
    const NetworkQuestion question{.count = kCount, .nodes = static_cast<std::uint32_t>(nodes)};
    const NetworkLoad load = network_load(question, by(NetworkAlgorithm::Direct), false, 1);
    EXPECT_EQ(load.steps, 2U);
    EXPECT_EQ(load.messages_sent, 2 * (nodes - 1));
    EXPECT_EQ(load.bytes_sent, 2 * (nodes - 1) * (kCount / nodes) * 4);
    EXPECT_EQ(load.bytes_received, load.bytes_sent);
  }
}

TEST(NetworkLoad, ARingSendsAsMuchInStepsOfAShard) {
  for (const std::uint64_t nodes : kNodes) {
    const NetworkQuestion question{.count = kCount, .nodes = static_cast<std::uint32_t>(nodes)};
    for (const bool both : {false, true}) {
      const NetworkLoad load = network_load(question, by(NetworkAlgorithm::Ring), both, 0);
      EXPECT_EQ(load.steps, both ? nodes - 1 + nodes / 2 : 2 * (nodes - 1));
      EXPECT_EQ(load.messages_sent, 2 * (nodes - 1));
      EXPECT_EQ(load.bytes_sent, 2 * (nodes - 1) * (kCount / nodes) * 4);
      EXPECT_EQ(load.bytes_received, load.bytes_sent);
    }
  }
}

TEST(NetworkLoad, PartialsOfHalvesAreTwiceAsWideAndResultsAreNot) {
  const NetworkQuestion question{.count = kCount, .dtype = DType::BFloat16, .nodes = 4};
  const std::uint64_t shard = kCount / 4;
  EXPECT_EQ(network_load(question, by(NetworkAlgorithm::Exchange), false, 0).bytes_sent,
            3 * kCount * 4);
  for (const NetworkAlgorithm algorithm : {NetworkAlgorithm::Direct, NetworkAlgorithm::Ring}) {
    EXPECT_EQ(network_load(question, by(algorithm), false, 0).bytes_sent,
              3 * shard * 4 + 3 * shard * 2);
    EXPECT_EQ(network_load(question, by(algorithm, DType::BFloat16), true, 0).bytes_sent,
              2 * 3 * shard * 2);
  }
}

// Sums and results alike, as blocks of 18 bytes.
TEST(NetworkLoad, WithACodecARingSendsTwiceTheBlocksThatAreNotItsOwn) {
  const NetworkQuestion question{.count = kCount, .nodes = 4, .codec = Codec::Q4};
  const std::uint64_t blocks = kCount / 4 / kCodecBlock;
  for (const NetworkAlgorithm algorithm : {NetworkAlgorithm::Direct, NetworkAlgorithm::Ring}) {
    EXPECT_EQ(network_load(question, by(algorithm), true, 2).bytes_sent, 2 * 3 * blocks * 18);
  }
}

// Whatever the count, what all send is what all receive, and what is not there is not sent.
TEST(NetworkLoad, AnyCountIsSentAsOftenAsItIsReceived) {
  for (const std::uint64_t count :
       {0ull, 1ull, 2ull, 15ull, 16ull, 17ull, 33ull, 1000ull, 99991ull}) {
    for (const std::uint32_t nodes : {2u, 3u, 7u, 17u, 64u}) {
      for (const NetworkAlgorithm algorithm : kNetworkAlgorithms) {
        const NetworkQuestion question{.count = count, .nodes = nodes};
        NetworkLoad all;
        for (std::uint32_t node = 0; node < nodes; ++node) {
          const NetworkLoad load = network_load(question, by(algorithm), true, node);
          all.messages_sent += load.messages_sent;
          all.messages_received += load.messages_received;
          all.bytes_sent += load.bytes_sent;
          all.bytes_received += load.bytes_received;
          if (count == 0) {
            EXPECT_EQ(load.messages_sent, 0U);
          }
        }
        EXPECT_EQ(all.messages_sent, all.messages_received);
        EXPECT_EQ(all.bytes_sent, all.bytes_received);
        const std::uint64_t once = std::uint64_t{nodes - 1} * count * 4;
        EXPECT_EQ(all.bytes_sent,
                  algorithm == NetworkAlgorithm::Exchange ? nodes * once : 2 * once);
      }
    }
  }
}

TEST(NetworkShards, CoverEverythingOnceInWholeLines) {
  for (const DType dtype : {DType::Int8, DType::Float16, DType::Float32, DType::Float64}) {
    for (const std::uint64_t count : {0ull, 1ull, 7ull, 63ull, 64ull, 65ull, 4096ull, 100003ull}) {
      for (const std::uint32_t nodes : kNodes) {
        const NetworkShards shards({.count = count, .dtype = dtype, .nodes = nodes});
        std::uint64_t next = 0;
        for (std::uint32_t node = 0; node < nodes; ++node) {
          const ElementRange shard = shards.of(node);
          EXPECT_EQ(shard.first, next);
          EXPECT_LE(shard.size(), shards.most_elements());
          if (shard.last != count) {
            EXPECT_EQ(shard.last * size_of(dtype) % kCacheLineBytes, 0U);
          }
          std::uint64_t within = shard.first;
          for (std::uint64_t chunk = 0; chunk < chunks_in(shard, 100); ++chunk) {
            const ElementRange part = chunk_of(shard, 100, chunk);
            EXPECT_EQ(part.first, within);
            EXPECT_FALSE(part.empty());
            within = part.last;
          }
          EXPECT_EQ(within, shard.last);
          next = shard.last;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
