// Kernels between nodes that are launched while the nodes still agree: nothing of them is seen
// before the agreement, and each ends where it does not come.
#include <gmock/gmock.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/daemon/exec/gpu/network/gpu_network_fixture.h"

namespace arcomm::test {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

class GpuNetworkEarly : public GpuNetwork {
 protected:
  static constexpr std::uint64_t kLongUs = 20'000'000;  // longer than any test
  static constexpr std::uint64_t kCount = 100'003;

  std::vector<GpuRank*> start_in_step(std::uint64_t early_us) {
    early_us_ = early_us;
    start(2);
    const auto ranks = group();
    EXPECT_EQ(ranks.size(), 2u);
    return ranks;
  }
  // Rank 1 calls, and its kernel waits for rank 0's node.
  void launch_early(const std::vector<GpuRank*>& ranks, PlanId plan, std::uint64_t count) {
    const int before = nodes_[1]->launches();
    for (std::uint64_t i = 0; i < count; ++i) {
      ranks[1]->send()[i] = element(1, i, 7);
      ranks[1]->recv()[i] = -1;
    }
    ranks[1]->start(plan, LaunchPath::Launched);
    ASSERT_TRUE(nodes_[1]->eventually([&] { return nodes_[1]->launches() == before + 1; }));
  }
  static bool is_untouched(const GpuRank& rank, std::uint64_t count) {
    return std::all_of(rank.recv(), rank.recv() + count, [](float value) { return value == -1; });
  }
  bool has_ended(std::size_t node) const {
    return nodes_[node]->eventually([&] { return nodes_[node]->running() == 0; });
  }
};

TEST_F(GpuNetworkEarly, AKernelIsLaunchedOnceAndBeforeTheOtherNodeHasCalled) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  const int before = nodes_[1]->launches();
  launch_early(ranks, plans[1], kCount);
  EXPECT_TRUE(is_untouched(*ranks[1], kCount));
  EXPECT_EQ(nodes_[0]->launches(), 1) << "nobody has called there";
  for (std::uint64_t i = 0; i < kCount; ++i) ranks[0]->send()[i] = element(0, i, 7);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  for (const GpuRank* rank : ranks) {
    ASSERT_TRUE(rank->wait(LaunchPath::Launched));
    for (std::uint64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(rank->recv()[i], element(0, i, 7) + element(1, i, 7)) << i;
  }
  EXPECT_EQ(nodes_[1]->launches(), before + 1);
}

TEST_F(GpuNetworkEarly, OneThatWaitsForTooLongLeavesAndIsLaunchedWhenTheNodesAgree) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  auto shorter = std::make_shared<Settings>();
  shorter->gpu.lease_ms = 20;
  shorter->net.gpu_early_us = 1;
  for (int round = 1; round < 4; ++round) {
    auto longer = std::make_shared<Settings>(*shorter);
    longer->net.gpu_early_us = kLongUs;
    nodes_[1]->worker().use_settings(longer);
    const int before = nodes_[1]->launches();
    launch_early(ranks, plans[1], kCount);
    nodes_[1]->worker().use_settings(shorter);
    EXPECT_TRUE(has_ended(1)) << "it holds SMs of the GPU";
    EXPECT_TRUE(is_untouched(*ranks[1], kCount));
    // The same operation, with what was staged before in its slots.
    for (std::uint64_t i = 0; i < kCount; ++i) ranks[0]->send()[i] = element(0, i, round);
    ranks[0]->start(plans[0], LaunchPath::Launched);
    for (const GpuRank* rank : ranks) {
      ASSERT_TRUE(rank->wait(LaunchPath::Launched));
      for (std::uint64_t i = 0; i < kCount; ++i)
        ASSERT_EQ(rank->recv()[i], element(0, i, round) + element(1, i, 7)) << i;
    }
    EXPECT_EQ(nodes_[1]->launches(), before + 2);
    // In step again.
    nodes_[1]->worker().use_settings(longer);
    all_reduce(ranks, plans, kCount, round);
  }
}

TEST_F(GpuNetworkEarly, WhatIsCalledOtherwiseElsewhereEndsItAndTouchesNothing) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  launch_early(ranks, plans[1], kCount);
  ranks[0]->start(plans_for(ranks, 2000)[0], LaunchPath::Launched);
  for (const GpuRank* rank : ranks)
    EXPECT_EQ(name_of(reason_from(rank->closed().reason)), name_of(Reason::Mismatch));
  EXPECT_TRUE(has_ended(1));
  EXPECT_TRUE(is_untouched(*ranks[1], kCount));
  const auto others = group();
  ASSERT_EQ(others.size(), 2u);
  all_reduce(others, plans_for(others, kCount), kCount, 2);
}

TEST_F(GpuNetworkEarly, TheDeadlineEndsIt) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  const PlanId soon = plans_for(ranks, kCount, milliseconds(200))[1];
  launch_early(ranks, soon, kCount);
  for (std::size_t node = 0; node < 2; ++node)
    nodes_[node]->expect_closed(*ranks[node], ErrorCode::DeadlineExceeded, Reason::Timeout, 0);
  EXPECT_TRUE(has_ended(1));
  EXPECT_TRUE(is_untouched(*ranks[1], kCount));
}

TEST_F(GpuNetworkEarly, DeathOfTheOtherNodesClientEndsIt) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  launch_early(ranks, plans[1], kCount);
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[0]->worker().close_session(ranks[0]->client->id(), Reason::RemoteDied,
                                                  "it was killed", done);
              }).ok());
  nodes_[1]->expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 0);
  EXPECT_TRUE(has_ended(1));
  EXPECT_TRUE(is_untouched(*ranks[1], kCount));
}

TEST_F(GpuNetworkEarly, DeathOfItsOwnClientEndsItBeforeItsMemoryGoes) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  launch_early(ranks, plans[1], kCount);
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[1]->worker().close_session(ranks[1]->client->id(), Reason::RemoteDied,
                                                  "it was killed", done);
              }).ok());
  nodes_[0]->expect_closed(*ranks[0], ErrorCode::Aborted, Reason::RemoteDied, 1);
  EXPECT_TRUE(has_ended(1));
}

TEST_F(GpuNetworkEarly, RankThatLeavesEndsItOnTheOtherNode) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  launch_early(ranks, plans[1], kCount);
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[0]->worker().leave_communicator(ranks[0]->client->id(), ranks[0]->member,
                                                       done);
              }).ok());
  nodes_[1]->expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteAborted, 0);
  EXPECT_TRUE(has_ended(1));
  EXPECT_TRUE(is_untouched(*ranks[1], kCount));
}

TEST_F(GpuNetworkEarly, AbortEndsItOnAllNodes) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  launch_early(ranks, plans[1], kCount);
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[0]->worker().abort_communicator(ranks[0]->client->id(), ranks[0]->member,
                                                       "enough", done);
              }).ok());
  for (const GpuRank* rank : ranks) EXPECT_NE(rank->closed().code, 0);
  EXPECT_TRUE(has_ended(1));
  EXPECT_TRUE(is_untouched(*ranks[1], kCount));
}

TEST_F(GpuNetworkEarly, ALostLinkEndsIt) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  launch_early(ranks, plans[1], kCount);
  const Error why = error(ErrorCode::Unavailable, Reason::RemoteDied, "it does not answer");
  EXPECT_TRUE(
      await<void>([&](auto done) { nodes_[1]->worker().close_link(kFirstPeer, why, done); }).ok());
  nodes_[1]->expect_closed(*ranks[1], ErrorCode::Unavailable, Reason::RemoteDied, 0);
  EXPECT_TRUE(has_ended(1));
  EXPECT_TRUE(is_untouched(*ranks[1], kCount));
  nodes_[1]->expect_serving(1000);
}

TEST_F(GpuNetworkEarly, QuiescingEndsItAndTheOperationRunsAllTheSame) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  launch_early(ranks, plans[1], kCount);
  ASSERT_EQ(nodes_[1]->running(), 1);
  // Taking memory quiesces the GPUs, and finds no kernel there: the fakes look.
  (void)nodes_[1]->rank(0, 4096);
  EXPECT_EQ(nodes_[1]->running(), 0);
  for (std::uint64_t i = 0; i < kCount; ++i) ranks[0]->send()[i] = element(0, i, 3);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  for (const GpuRank* rank : ranks) {
    ASSERT_TRUE(rank->wait(LaunchPath::Launched));
    for (std::uint64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(rank->recv()[i], element(0, i, 3) + element(1, i, 7)) << i;
  }
}

TEST_F(GpuNetworkEarly, TheEndOfTheDaemonEndsIt) {
  const auto ranks = start_in_step(kLongUs);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  launch_early(ranks, plans[1], kCount);
  nodes_[1]->finish();
  EXPECT_EQ(nodes_[1]->running(), 0);
}

TEST_F(GpuNetworkEarly, OffIsOff) {
  const auto ranks = start_in_step(0);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 0);
  const int before = nodes_[1]->launches();
  ranks[1]->start(plans[1], LaunchPath::Launched);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(nodes_[1]->launches(), before);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  for (const GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
}

TEST_F(GpuNetworkEarly, SumsAreRightHoweverLateTheOtherNodeIsAndWhateverQuiesces) {
  const auto ranks = start_in_step(300);
  std::mt19937 random(3);
  for (const std::uint64_t count : {std::uint64_t{100}, std::uint64_t{30'000}, kCount}) {
    const auto plans = plans_for(ranks, count);
    for (int round = 0; round < 30; ++round) {
      const std::size_t first = random() % 2;
      for (std::size_t n = 0; n < 2; ++n) {
        const std::size_t rank = n == 0 ? first : 1 - first;
        for (std::uint64_t i = 0; i < count; ++i) ranks[rank]->send()[i] = element(rank, i, round);
        ranks[rank]->start(plans[rank], LaunchPath::Launched);
        if (n == 0 && round % 3 != 0) std::this_thread::sleep_for(microseconds(random() % 700));
        if (n == 0 && round % 10 == 9) (void)nodes_[first]->rank(1, 4096);
      }
      for (const GpuRank* rank : ranks) {
        ASSERT_TRUE(rank->wait(LaunchPath::Launched)) << count << " elements, round " << round;
        for (std::uint64_t i = 0; i < count; ++i)
          ASSERT_EQ(rank->recv()[i], element(0, i, round) + element(1, i, round)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace arcomm::test
