// How operations are launched speculatively: prepared or not, and what becomes of gates that give
// up.
#include "tests/unit/daemon/exec/gpu/speculation/gpu_speculation_fixture.h"

namespace arcomm::test {
namespace {

using GpuGates = GpuSpeculation;

TEST_F(GpuGates, WhatIsCalledAgainAndAgainIsPreparedOnce) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 20; ++i) run(ranks, same);
  EXPECT_EQ(node_.prepared, 2);
  EXPECT_GE(node_.prepared_used, 20);  // by two ranks each time, but for the first few
  EXPECT_EQ(node_.sums, 20);
  const int used = node_.prepared_used;
  run(ranks, same);
  EXPECT_TRUE(eventually([&] { return node_.prepared_used > used; }));
}

TEST_F(GpuGates, WhatWasPreparedIsNotUsedForAnotherPlanInItsPlace) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 10; ++i) run(ranks, same);
  ASSERT_TRUE(remove_plan(*ranks[0], same[0]).ok());
  const PlanId fresh = plan(*ranks[0], kLarge);
  for (int i = 0; i < 10; ++i) run(ranks, {fresh, same[1]});
  EXPECT_EQ(node_.sums, 20);
}

TEST_F(GpuGates, WhatCannotBePreparedIsLaunchedAheadAllTheSame) {
  node_.preparing_fails = true;
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 20; ++i) run(ranks, same);
  EXPECT_TRUE(eventually([&] { return hits() >= 10; })) << hits();
  EXPECT_EQ(node_.prepared, 0);
}

TEST_F(GpuGates, WhatWasPreparedGoesWithTheCommunicator) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 10; ++i) run(ranks, same);
  ASSERT_EQ(node_.prepared, 2);
  for (GpuRank* rank : ranks) {
    const Result<void> left = await<void>(
        [&](auto done) { worker_->leave_communicator(rank->client->id(), rank->member, done); });
    EXPECT_TRUE(left.ok());
  }
  EXPECT_TRUE(eventually([&] { return node_.prepared == 0; })) << node_.prepared;
}

TEST_F(GpuGates, WhatIsCalledAfterItsGateGaveUpIsLaunchedAgain) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  speculate(ranks, same);
  const int sums = node_.sums;
  node_.gates_giving_up = static_cast<int>(2 * ahead_);  // the worker is not told
  for (std::size_t i = 0; i < 2; ++i) call(*ranks[i], same[i], 6);
  expect_sum(ranks, 12);
  EXPECT_EQ(node_.gates_giving_up, 0);
  EXPECT_EQ(node_.sums, sums + 1);
  for (int i = 0; i < 4; ++i) run(ranks, same);
}

TEST_F(GpuGates, GatesThatGaveUpInACycleHoldUpNobodyForLong) {
  const auto ranks = group(2);
  const std::vector<std::uint64_t> counts{kLarge, kOther, kLarge - 16};
  std::vector<std::vector<PlanId>> cycle;
  cycle.reserve(counts.size());
  for (const std::uint64_t count : counts) cycle.push_back(plans(ranks, count));
  const auto go_round = [&] {
    for (std::size_t i = 0; i < cycle.size(); ++i) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        ranks[rank]->send()[0] = 3;
        ranks[rank]->recv()[0] = -1;
        ranks[rank]->start(cycle[i][rank], LaunchPath::Launched);
      }
      for (GpuRank* rank : ranks) {
        ASSERT_TRUE(rank->wait(LaunchPath::Launched));
        EXPECT_EQ(rank->recv()[0], 6);
      }
    }
  };
  for (int i = 0; i < 12; ++i) go_round();
  ASSERT_TRUE(eventually([&] { return node_.gated == 4; })) << node_.gated;
  const int sums = node_.sums;
  node_.gates_giving_up = 4;  // those that wait; the worker is not told
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) go_round();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(node_.sums, sums + 12);
}

TEST_F(GpuGates, NothingToReduceInBetweenIsCounted) {
  const auto ranks = group(2);
  const auto same = plans(ranks), empty = plans(ranks, 0);
  for (int i = 0; i < 5; ++i) {
    run(ranks, same);
    for (std::size_t rank = 0; rank < 2; ++rank)
      ranks[rank]->start(empty[rank], LaunchPath::Launched);
    for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Launched));
    run(ranks, same);
  }
  EXPECT_GT(hits(), 0u);
}

}  // namespace
}  // namespace arcomm::test
