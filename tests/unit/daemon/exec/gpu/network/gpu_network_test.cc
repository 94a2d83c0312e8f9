// Communicators of GPUs that span nodes: what all have in common, whenever their kernels begin.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "daemon/plan/launch_table_builder.h"
#include "tests/unit/daemon/exec/gpu/network/gpu_network_fixture.h"

namespace arcomm::test {
namespace {

TEST_F(GpuNetwork, RanksOfTwoNodesGetTheSumsOfBothAtEverySize) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  for (const std::uint64_t count : {1ull, 1000ull, 4096ull, 100'003ull, 1ull << 20}) {
    const auto plans = plans_for(ranks, count);
    for (int round = 0; round < 3; ++round) {
      all_reduce(ranks, plans, count, round);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuNetwork, RanksOfThreeNodesGetTheSumsOfAll) {
  start(3);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 3u);
  const auto plans = plans_for(ranks, 300'000);
  for (int round = 0; round < 3; ++round) {
    all_reduce(ranks, plans, 300'000, round);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuNetwork, EachStepBetweenNodesIsInTheFlightRecorder) {
  constexpr std::uint64_t kCount = 100'000, kBytes = kCount * sizeof(float);
  start(3);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 3u);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  for (const auto& node : nodes_) {
    const auto is_done = [&] {
      const FlightLog log = node->recorded();
      return !log.operations.empty() && log.operations.back().done_ns != 0;
    };
    ASSERT_TRUE(node->eventually(is_done));
    const FlightLog log = node->recorded();
    const FlightRecord& record = log.operations.back();
    ASSERT_EQ(log.network.size(), 1u);
    const NetworkSteps& steps = log.network[0];
    EXPECT_EQ(steps.seq, record.seq);
    EXPECT_EQ(steps.nodes, 3u);
    EXPECT_EQ(steps.algorithm, record.algorithm);
    EXPECT_EQ(steps.sent_bytes, 2 * kBytes);
    EXPECT_EQ(steps.received_bytes, 2 * kBytes);
    for (const std::uint64_t step : {steps.posted_ns, steps.sent_ns, steps.arrived_ns}) {
      EXPECT_GE(step, record.agreed_ns);
      EXPECT_LE(step, record.done_ns);
    }
  }
}

TEST_F(GpuNetwork, ClientsAreOfferedNothingThatNeedsTheOtherRanksGpus) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  for (const GpuRank* rank : ranks) {
    EXPECT_EQ(rank->exchange_bytes, 0u);
    EXPECT_EQ(rank->launches.ranks(), 2u);
    for (const std::uint64_t bytes : {0ull, 64ull, 1ull << 30})
      EXPECT_EQ(rank->launches.find({.bytes = bytes}).path, LaunchPath::Launched);
  }
  for (const auto& node : nodes_) {
    const std::vector<CommunicatorSnapshot> all = node->inspect().communicators;
    ASSERT_EQ(all.size(), 1u);
    const std::vector<LaunchStretch> told = stretches_of(*all[0].launches, DType::BFloat16);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].between_nodes, NetworkAlgorithm::Exchange) << "what `arctl comms` says";
    EXPECT_EQ(told[0].launched, std::nullopt);
    EXPECT_EQ(all[0].why_not_in_stream, "its ranks are on several nodes");
    ASSERT_EQ(all[0].ranks.size(), 2u);
    for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(all[0].ranks[rank].node, name(rank));
  }
}

TEST_F(GpuNetwork, OperationWithoutElementsEndsOnAllNodes) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto none = plans_for(ranks, 0);
  for (std::size_t rank = 0; rank < 2; ++rank) ranks[rank]->start(none[rank], LaunchPath::Launched);
  for (const GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
}

TEST_F(GpuNetwork, SeveralRanksOfANodeGetTheSumsOfAllAtEverySize) {
  start(2);
  for (const std::vector<std::uint32_t>& where :
       {std::vector<std::uint32_t>{0, 0, 1}, {1, 0, 1, 0, 1}}) {
    const auto ranks = group(where);
    ASSERT_EQ(ranks.size(), where.size());
    EXPECT_EQ(ranks[0]->launches.ranks(), where.size());
    for (const std::uint64_t count : {1ull, 1000ull, 100'003ull, 1ull << 20}) {
      const auto plans = plans_for(ranks, count);
      for (int round = 0; round < 3; ++round) {
        all_reduce(ranks, plans, count, round);
        if (HasFatalFailure()) return;
      }
    }
    const auto none = plans_for(ranks, 0);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank]->start(none[rank], LaunchPath::Launched);
    for (const GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
  }
}

TEST_F(GpuNetwork, OneOfSeveralRanksOfANodeDiesAndAllHearOfIt) {
  start(2);
  const auto ranks = group({0, 1, 1});
  ASSERT_EQ(ranks.size(), 3u);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 1);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  ranks[1]->start(plans[1], LaunchPath::Launched);
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[1]->worker().close_session(ranks[2]->client->id(), Reason::RemoteDied,
                                                  "it was killed", done);
              }).ok());
  for (const std::size_t rank : {0u, 1u})
    nodes_[where_[rank]]->expect_closed(*ranks[rank], ErrorCode::Aborted, Reason::RemoteDied, 2);
}

TEST_F(GpuNetwork, OneOfSeveralRanksOfANodeThatDoesNotCallIsNamed) {
  start(2);
  const auto ranks = group({0, 1, 1});
  ASSERT_EQ(ranks.size(), 3u);
  const auto plans = plans_for(ranks, 1000, milliseconds(200));
  ranks[0]->start(plans[0], LaunchPath::Launched);
  ranks[1]->start(plans[1], LaunchPath::Launched);
  for (std::size_t rank = 0; rank < 3; ++rank)
    nodes_[where_[rank]]->expect_closed(*ranks[rank], ErrorCode::DeadlineExceeded, Reason::Timeout,
                                        2);
}

TEST_F(GpuNetwork, RankThatDoesNotCallIsNamedWhenTheDeadlinePasses) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto plans = plans_for(ranks, 1000, milliseconds(200));
  ranks[0]->start(plans[0], LaunchPath::Launched);
  for (std::size_t node = 0; node < 2; ++node)
    nodes_[node]->expect_closed(*ranks[node], ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
}

TEST_F(GpuNetwork, DifferentCallsAreAMismatchOnBothNodes) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  ranks[0]->start(plans_for(ranks, 1000)[0], LaunchPath::Launched);
  ranks[1]->start(plans_for(ranks, 2000)[1], LaunchPath::Launched);
  for (const GpuRank* rank : ranks) {
    EXPECT_EQ(name_of(reason_from(rank->closed().reason)), name_of(Reason::Mismatch));
  }
}

TEST_F(GpuNetwork, DeathOfAClientIsHeardOnTheOtherNode) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 1);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  const auto closed = await<void>([&](auto done) {
    nodes_[1]->worker().close_session(ranks[1]->client->id(), Reason::RemoteDied, "it was killed",
                                      done);
  });
  EXPECT_TRUE(closed.ok());
  nodes_[0]->expect_closed(*ranks[0], ErrorCode::Aborted, Reason::RemoteDied, 1);
  const auto others = group();
  ASSERT_EQ(others.size(), 2u);
  all_reduce(others, plans_for(others, 5000), 5000, 2);
}

TEST_F(GpuNetwork, RankThatLeavesInGoodOrderIsHeardOnTheOtherNode) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 1);
  const auto left = await<void>([&](auto done) {
    nodes_[1]->worker().leave_communicator(ranks[1]->client->id(), ranks[1]->member, done);
  });
  EXPECT_TRUE(left.ok());
  nodes_[0]->expect_closed(*ranks[0], ErrorCode::Aborted, Reason::RemoteAborted, 1);
}

TEST_F(GpuNetwork, LinkThatIsLostEndsTheCommunicatorInTheMiddleOfAnOperation) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 1);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  const Error why = error(ErrorCode::Unavailable, Reason::RemoteDied, "it does not answer");
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[0]->worker().close_link(kFirstPeer + 1, why, done);
              }).ok());
  nodes_[0]->expect_closed(*ranks[0], ErrorCode::Unavailable, Reason::RemoteDied, 1);
  nodes_[0]->expect_serving(1000);
}

}  // namespace
}  // namespace arcomm::test
