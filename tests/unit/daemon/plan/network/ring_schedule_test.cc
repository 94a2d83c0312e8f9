#include "daemon/plan/network/ring_schedule.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/daemon/plan/network/node_counts.h"

namespace arcomm {
namespace {

// The nodes whose contributions are in it, in the order in which they were added: always a run
// around the ring.
struct Sum {
  std::uint32_t first = 0, length = 0;
  friend bool operator==(const Sum&, const Sum&) = default;
};

TEST(RingSchedule, HasTwiceNodesLessOneStepsAndHalfOfTheGatherBothWays) {
  for (const std::uint32_t nodes : kNodes) {
    EXPECT_EQ(RingSchedule(nodes, 0, false).steps(), 2 * (nodes - 1));
    const std::uint32_t half = (nodes - 1 + 1) / 2;  // ceil((nodes - 1) / 2)
    EXPECT_EQ(RingSchedule(nodes, 0, true).gather_steps(), half);
    EXPECT_EQ(RingSchedule(nodes, 0, true).steps(), nodes - 1 + half);
  }
  EXPECT_EQ(RingSchedule(1, 0, true).steps(), 0U);
  EXPECT_EQ(RingSchedule(1, 0, false).steps(), 0U);
}

// Of every node in every step: what it sends is what its neighbour takes in the same step.
TEST(RingSchedule, WhatIsSentIsTaken) {
  for (const std::uint32_t nodes : kNodes) {
    if (nodes > 64) continue;
    for (const bool both : {false, true}) {
      for (std::uint32_t here = 0; here < nodes; ++here) {
        const RingSchedule mine(nodes, here, both);
        for (std::uint32_t index = 0; index < mine.steps(); ++index) {
          const RingStep step = mine.step(index);
          ASSERT_TRUE(step.right.used);
          const RingStep taken = RingSchedule(nodes, step.right.to, both).step(index);
          EXPECT_EQ(taken.from_left.from, here);
          EXPECT_EQ(taken.from_left.shard, step.right.shard);
          EXPECT_NE(taken.from_left.duty, RingDuty::None);
          const RingStep other = RingSchedule(nodes, mine.left(), both).step(index);
          EXPECT_EQ(other.from_right.duty != RingDuty::None, step.left.used);
          if (!step.left.used) continue;
          EXPECT_EQ(step.left.to, mine.left());
          EXPECT_EQ(other.from_right.from, here);
          EXPECT_EQ(other.from_right.shard, step.left.shard);
        }
      }
    }
  }
}

// Runs all nodes in lockstep: a node sends what it has, and at the end has all results, each the
// sum of all nodes beginning with its owner's right-hand neighbour.
TEST(RingSchedule, EveryNodeGetsEveryShardAddedUpInAnOrderThatFollowsFromTheNodesAlone) {
  for (const std::uint32_t nodes : kNodes) {
    for (const bool both : {false, true}) {
      std::vector<std::vector<Sum>> held(nodes, std::vector<Sum>(nodes));  // by node and shard
      for (std::uint32_t node = 0; node < nodes; ++node) {
        for (Sum& sum : held[node]) sum = {node, 1};
      }
      const RingSchedule any(nodes, 0, both);
      struct Arrival {
        std::uint32_t node, shard;
        Sum sum;
      };
      std::vector<Arrival> arrivals;
      for (std::uint32_t index = 0; index < any.steps(); ++index) {
        arrivals.clear();
        for (std::uint32_t node = 0; node < nodes; ++node) {
          const RingSchedule schedule(nodes, node, both);
          const RingStep step = schedule.step(index);
          for (const RingReceive& in : {step.from_left, step.from_right}) {
            if (in.duty == RingDuty::None) continue;
            const Sum& sent = held[in.from][in.shard];
            if (in.duty == RingDuty::Store) {
              ASSERT_EQ(sent.length, nodes) << "a result is passed on before it is there";
              arrivals.push_back({node, in.shard, sent});
              continue;
            }
            const Sum& own = held[node][in.shard];
            ASSERT_EQ(own, (Sum{node, 1})) << "combined twice";
            ASSERT_EQ((sent.first + sent.length) % nodes, node) << "out of the ring's order";
            arrivals.push_back({node, in.shard, {sent.first, sent.length + 1}});
            EXPECT_EQ(in.duty == RingDuty::Finish, sent.length + 1 == nodes);
            EXPECT_EQ(in.duty == RingDuty::Finish, in.shard == node);
          }
        }
        for (const Arrival& arrival : arrivals) held[arrival.node][arrival.shard] = arrival.sum;
      }
      for (std::uint32_t node = 0; node < nodes; ++node) {
        for (std::uint32_t shard = 0; shard < nodes; ++shard) {
          ASSERT_EQ(held[node][shard], (Sum{(shard + 1) % nodes, nodes})) << nodes << " nodes";
        }
      }
    }
  }
}

TEST(RingSchedule, NoShardComesTwiceInTheGather) {
  for (const std::uint32_t nodes : kNodes) {
    if (nodes > 64) continue;
    const RingSchedule schedule(nodes, nodes - 1, true);
    std::vector<int> came(nodes, 0);
    for (std::uint32_t index = schedule.reduce_steps(); index < schedule.steps(); ++index) {
      const RingStep step = schedule.step(index);
      EXPECT_EQ(step.phase, RingPhase::AllGather);
      if (step.from_left.duty != RingDuty::None) ++came[step.from_left.shard];
      if (step.from_right.duty != RingDuty::None) ++came[step.from_right.shard];
    }
    for (std::uint32_t shard = 0; shard < nodes; ++shard) {
      EXPECT_EQ(came[shard], shard == nodes - 1 ? 0 : 1);
    }
  }
}

static_assert(RingSchedule(4, 1, true).step(0).right.shard == 0, "usable at compile time");

}  // namespace
}  // namespace arcomm
