// AllReduces of workers that are linked over TCP, with the host's own executor.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/daemon/exec/net/nodes_fixture.h"

namespace arcomm::test {
namespace {

// In place a result is written where its input was sent from, behind the peer that had to have the
// input for it: an order over the network, of which ThreadSanitizer does not know.
#if defined(__SANITIZE_THREAD__)
constexpr bool kSeesPeers = false;
#else
constexpr bool kSeesPeers = true;
#endif

struct Way {
  const char* name;
  NetAlgorithm algorithm;
  std::int64_t both_ways;
};
constexpr Way kWays[] = {{"auto", NetAlgorithm::Auto, 0},
                         {"exchange", NetAlgorithm::Exchange, 0},
                         {"direct", NetAlgorithm::Direct, 0},
                         {"ring", NetAlgorithm::Ring, 0},
                         {"ring both ways", NetAlgorithm::Ring, -1}};

class NodesAllReduceTest : public NodesTest {
 protected:
  static constexpr std::size_t kMost = std::size_t{8} << 20;  // bytes of a rank

  void form_with(const Way& way, const std::vector<std::uint32_t>& node_of_rank,
                 std::uint64_t number) {
    policy_.algorithm = way.algorithm;
    policy_.order = NetOrder::OfRing;
    policy_.ring.bidirectional_max_bytes = way.both_ways;
    ranks_.clear();
    for (const std::uint32_t node : node_of_rank) {
      Client& rank = client(node);
      rank.memory(2 * kMost);
      rank.recv_offset = kMost;
      ranks_.push_back(&rank);
    }
    form(ranks_, node_of_rank, number);
  }
  // Rank r sends small whole numbers, whose sums are exact in any order.
  static float element(std::size_t rank, std::size_t i, std::uint64_t seed) {
    return static_cast<float>((i * 7 + rank * 13 + seed) % 251);
  }
  void all_reduce(std::uint64_t count, bool in_place, std::uint64_t seed) {
    in_place = in_place && kSeesPeers;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      auto* input = ranks_[rank]->last_memory().as<float>();
      for (std::size_t i = 0; i < count; ++i) input[i] = element(rank, i, seed);
    }
    for (Client* rank : ranks_) {
      ring::WorkRequest request = rank->request(count);
      if (in_place) request.recv_offset_bytes = 0;
      rank->submit(request);
    }
    for (Client* rank : ranks_) {
      const auto completion = next(*rank);
      ASSERT_EQ(completion.code, 0) << text_of(completion);
      const auto* output = rank->last_memory().as<float>(in_place ? 0 : kMost);
      for (std::size_t i = 0; i < count; ++i) {
        float sum = 0;
        for (std::size_t of = 0; of < ranks_.size(); ++of) sum += element(of, i, seed);
        ASSERT_EQ(output[i], sum) << "element " << i << " of " << count;
      }
    }
  }

  std::vector<Client*> ranks_;
};

TEST_F(NodesAllReduceTest, EveryWayBetweenNodesGivesTheSum) {
  start(3, 2, false);
  std::uint64_t number = 7;
  for (const Way& way : kWays) {
    for (const std::vector<std::uint32_t>& node_of_rank :
         {std::vector<std::uint32_t>{0, 1, 2}, std::vector<std::uint32_t>{0, 0, 1, 2, 1, 0}}) {
      SCOPED_TRACE(way.name);
      form_with(way, node_of_rank, ++number);
      for (const std::uint64_t count : {0, 1, 2, 1000, 4096, 70'001, 1'000'003}) {
        all_reduce(count, false, number + count);
        all_reduce(count, true, number + count + 1);
      }
    }
  }
}

TEST_F(NodesAllReduceTest, EachStepBetweenNodesIsInTheFlightRecorder) {
  start(3, 2, false);
  std::uint64_t number = 7;
  constexpr std::uint64_t kCount = 60'000;
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    form_with(way, {0, 1, 2}, ++number);
    all_reduce(kCount, false, number);
    for (const auto& node : nodes_) {
      const FlightLog log = node->recorder().log();
      const FlightRecord& record = log.operations.back();
      const NetworkStepsIndex index(log.network);
      const NetworkSteps* steps = index.find(record);
      ASSERT_NE(steps, nullptr);
      EXPECT_EQ(steps->nodes, 3u);
      EXPECT_EQ(steps->algorithm, record.algorithm);
      EXPECT_GE(steps->posted_ns, record.agreed_ns);
      EXPECT_GE(steps->sent_ns, steps->posted_ns);
      EXPECT_GE(steps->arrived_ns, record.agreed_ns);
      EXPECT_LE(steps->sent_ns, record.done_ns);
      EXPECT_LE(steps->arrived_ns, record.done_ns);
      // Each node has two thirds of the sums to send and two thirds of the results, or all of its
      // own to two others.
      const bool is_exchange = way.algorithm == NetAlgorithm::Exchange;
      const double bytes = kCount * sizeof(float) * (is_exchange ? 2 : 4.0 / 3);
      EXPECT_NEAR(static_cast<double>(steps->sent_bytes), bytes, bytes / 100);
      EXPECT_NEAR(static_cast<double>(steps->received_bytes), bytes, bytes / 100);
    }
  }
}

TEST_F(NodesAllReduceTest, WhatTravelsWithOffersIsRecordedAsSuch) {
  start(2, 1, false);
  form_with(kWays[0], {0, 1}, 8);
  all_reduce(16, false, 3);
  const FlightLog log = nodes_[0]->recorder().log();
  ASSERT_EQ(log.network.size(), 1u);
  const NetworkSteps& steps = log.network[0];
  EXPECT_EQ(steps.sent_bytes, 64u);
  EXPECT_EQ(steps.received_bytes, 64u);
  EXPECT_GE(steps.posted_ns, log.operations[0].matched_ns);
  EXPECT_LE(steps.posted_ns, steps.arrived_ns);
  EXPECT_EQ(steps.arrived_ns, log.operations[0].agreed_ns);
  EXPECT_EQ(steps.sent_ns, 0u);
  EXPECT_EQ(steps.credited_ns, 0u);
}

TEST_F(NodesAllReduceTest, WithNoBulkStreamsEverythingGoesOverStreamZero) {
  start(2, 0, false);
  form_with(kWays[0], {0, 1}, 8);
  for (const std::uint64_t count : {1, 5000, 500'000}) all_reduce(count, false, count);
}

TEST_F(NodesAllReduceTest, OperationsCalledInARowRunInARow) {
  constexpr std::uint64_t kCalls = 40;
  start(3, 2, false);
  form_with(kWays[0], {0, 1, 2}, 9);
  for (const std::uint64_t count : {16, 3000, 40'000}) {
    for (Client* rank : ranks_) {
      auto* input = rank->last_memory().as<float>();
      std::fill(input, input + count, 1.0F);
    }
    // Each takes what the one before has made, in place: 3 ^ calls, if it has waited for it.
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      for (Client* rank : ranks_) {
        ring::WorkRequest request = rank->request(count);
        request.recv_offset_bytes = 0;
        rank->submit(request);
      }
    }
    float expected = 1;
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      expected *= 3;
      for (Client* rank : ranks_) ASSERT_EQ(next(*rank).code, 0);
    }
    for (Client* rank : ranks_) {
      const auto* output = rank->last_memory().as<float>();
      for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(output[i], expected) << i;
    }
  }
}

// What one leaves behind, in staging or on its way, is never taken for another's.
TEST_F(NodesAllReduceTest, CommunicatorsThatComeAndGoDoNotTouchEachOther) {
  struct Group {
    std::vector<Client*> ranks;
    std::uint64_t count = 0, seed = 0;
    bool in_place = false, is_aborted = false;
  };
  start(3, 2, false);
  std::mt19937 random(20);
  const std::vector<std::uint32_t> placed[] = {{0, 1, 2}, {0, 1, 1, 2}, {0, 1}, {0, 1, 2}};
  std::vector<Group> groups;
  std::uint64_t number = 100;
  for (std::size_t group = 0; group < std::size(placed); ++group) {
    form_with(kWays[1 + group], placed[group], ++number);
    groups.push_back({.ranks = ranks_});
  }
  std::uint64_t succeeded = 0;
  for (int round = 0; round < 60; ++round) {
    for (Group& group : groups) {
      group.count = 1 + random() % (random() % 4 == 0 ? 400'000 : 20'000);
      group.seed = random() % 1000;
      group.in_place = kSeesPeers && random() % 2 == 0;
      for (std::size_t rank = 0; rank < group.ranks.size(); ++rank) {
        auto* input = group.ranks[rank]->last_memory().as<float>();
        for (std::size_t i = 0; i < group.count; ++i) input[i] = element(rank, i, group.seed);
        ring::WorkRequest request = group.ranks[rank]->request(group.count);
        if (group.in_place) request.recv_offset_bytes = 0;
        group.ranks[rank]->submit(request);
      }
    }
    for (std::size_t index = 0; index < groups.size(); ++index) {
      Group& group = groups[index];
      group.is_aborted = random() % 4 == 0;
      if (!group.is_aborted) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
      const std::size_t who = random() % group.ranks.size();
      EXPECT_TRUE(await<void>([&](auto done) {
                    nodes_[placed[index][who]]->worker->abort_communicator(
                        group.ranks[who]->id(), group.ranks[who]->member, "enough", done);
                  }).ok());
    }
    for (std::size_t index = 0; index < groups.size(); ++index) {
      Group& group = groups[index];
      for (std::size_t rank = 0; rank < group.ranks.size(); ++rank) {
        const auto completion = next(*group.ranks[rank]);
        if (completion.code != 0) {
          ASSERT_TRUE(group.is_aborted) << text_of(completion);
          continue;
        }
        ++succeeded;
        const auto* output = group.ranks[rank]->last_memory().as<float>(group.in_place ? 0 : kMost);
        for (std::size_t i = 0; i < group.count; ++i) {
          float sum = 0;
          for (std::size_t of = 0; of < group.ranks.size(); ++of) sum += element(of, i, group.seed);
          ASSERT_EQ(output[i], sum) << "element " << i << " of " << group.count << ", round "
                                    << round << ", group " << index;
        }
      }
      if (!group.is_aborted) continue;
      for (std::size_t rank = 0; rank < group.ranks.size(); ++rank)
        (void)leave(placed[index][rank], *group.ranks[rank]);
      form(group.ranks, placed[index], ++number);
    }
  }
  EXPECT_GT(succeeded, 300u);
  for (std::size_t node = 0; node < 3; ++node) EXPECT_TRUE(nodes_[node]->links_lost().empty());
}

TEST_F(NodesAllReduceTest, WhoWaitsForAnotherNodeDoesNotSpin) {
  start(2, 2, false);
  form_with(kWays[2], {0, 1}, 10);
  all_reduce(500'000, false, 1);
  // One node has called a large operation, and the other one has not.
  ranks_[0]->call(500'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto used = [this] { return nodes_[0]->cpu_clock().now() + nodes_[1]->cpu_clock().now(); };
  const auto before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_LT(used() - before, std::chrono::milliseconds(100)) << "of both workers in 400 ms";
  ranks_[1]->call(500'000);
  for (Client* rank : ranks_) EXPECT_EQ(next(*rank).code, 0);
}

TEST_F(NodesAllReduceTest, TimesBesideEachOther) {
  start(2, 2, false);
  form_with(kWays[0], {0, 1}, 11);
  for (const std::uint64_t bytes : {std::uint64_t{1} << 10, std::uint64_t{16} << 10,
                                    std::uint64_t{256} << 10, std::uint64_t{4} << 20}) {
    std::vector<double> times;
    for (int i = 0; i < 60; ++i) {
      const auto since = std::chrono::steady_clock::now();
      for (Client* rank : ranks_) rank->call(bytes / 4);
      for (Client* rank : ranks_) ASSERT_EQ(next(*rank).code, 0);
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - since)
              .count());
    }
    std::ranges::sort(times);
    std::printf("%8llu bytes between two nodes: median %.0f us\n",
                static_cast<unsigned long long>(bytes), times[times.size() / 2]);
  }
}

}  // namespace
}  // namespace arcomm::test
