// Operations that are launched before they are called: what repeats itself is served so, and
// whatever goes otherwise leaves nothing behind in the queues.
#include "tests/unit/daemon/exec/gpu/speculation/gpu_speculation_fixture.h"

namespace arcomm::test {
namespace {

TEST_F(GpuSpeculation, OperationsThatAreLaunchedAheadGoOnWhenAScratchHasTakenAllThatItTakes) {
  node_.operations_of_scratch = 7;
  const auto ranks = group(2);
  const auto made = plans(ranks);
  for (int i = 0; i < 40; ++i) run(ranks, made);
  EXPECT_GE(hits(), 10u);
  EXPECT_GE(node_.started_over, 2 * 4);
}

TEST_F(GpuSpeculation, WhatRepeatsItselfIsLaunchedBeforeItIsCalled) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  // What is called while the worker prepares is not speculative: count from then on.
  for (int i = 0; i < 10; ++i) run(ranks, same);
  ASSERT_EQ(node_.prepared, 2);
  speculate(ranks, same);
  const std::uint64_t before = hits();
  for (int i = 0; i < 20; ++i) run(ranks, same);
  EXPECT_TRUE(eventually([&] { return hits() == before + 20; })) << hits() - before;
  EXPECT_EQ(misses(), 0u);
  EXPECT_EQ(node_.sums, 33);
  EXPECT_TRUE(eventually([&] { return inspect().operations_done == 66; }));
}

TEST_F(GpuSpeculation, TheOneAfterTheNextIsLaunchedTooBeforeTheNextIsCalled) {
  const auto ranks = group(2);
  const auto one = plans(ranks), other = plans(ranks, kOther);
  for (int i = 0; i < 20; ++i) {
    run(ranks, one);
    run(ranks, other, kOther);
  }
  ASSERT_TRUE(eventually([&] { return node_.gated == 4; })) << node_.gated;
  run(ranks, one);
  run(ranks, other, kOther);
  EXPECT_EQ(misses(), 0u);
}

// All calls are of one plan, so that only the number at the doorbell says which is meant.
TEST_F(GpuSpeculation, WhatIsLaunchedAheadDoesNotTakeTheCallOfWhatRunsForItsOwn) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 2; ++i) run(ranks, same);
  node_.hold_launches = true;
  for (std::size_t i = 0; i < 2; ++i) call(*ranks[i], same[i], 7);
  ASSERT_TRUE(eventually([&] { return node_.gated == 4; })) << node_.gated;
  node_.hold_launches = false;
  expect_sum(ranks, 14);
  turn(100);
  EXPECT_EQ(node_.sums, 3);
  EXPECT_EQ(node_.gated, 4);
  run(ranks, same);
  EXPECT_EQ(node_.sums, 4);
}

TEST_F(GpuSpeculation, ACycleOfPlansIsFollowed) {
  const auto ranks = group(3);
  const auto one = plans(ranks), other = plans(ranks, kOther);
  for (int i = 0; i < 10; ++i) {
    run(ranks, one);
    run(ranks, other, kOther);
  }
  EXPECT_GE(hits(), 10u);
  EXPECT_EQ(misses(), 0u);
}

TEST_F(GpuSpeculation, WhatIsCalledInsteadRunsAndNothingElse) {
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  std::uint64_t in_vain = 0;
  for (int round = 0; round < 3; ++round) {
    speculate(ranks, same);
    in_vain += ahead_;
    const int sums = node_.sums;
    run(ranks, other, kOther);
    EXPECT_EQ(node_.sums, sums + 1);
  }
  EXPECT_TRUE(eventually([&] { return misses() == in_vain; })) << misses();
}

TEST_F(GpuSpeculation, WhatIsCalledInsteadWaitsUntilTheCancelledOneHasLeft) {
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  speculate(ranks, same);
  const int sums = node_.sums;
  node_.queues_stay_busy = true;
  for (std::size_t i = 0; i < 2; ++i) call(*ranks[i], other[i], 4);
  ASSERT_TRUE(eventually([&] { return misses() == ahead_; }));
  turn(100);
  EXPECT_EQ(node_.sums, sums);
  node_.queues_stay_busy = false;
  expect_sum(ranks, 8, kOther);
  run(ranks, same);
}

TEST_F(GpuSpeculation, RevocationWhileTheCancelledOneLeavesIsTold) {
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  speculate(ranks, same);
  node_.queues_stay_busy = true;
  for (std::size_t i = 0; i < 2; ++i) call(*ranks[i], other[i], 4);
  ASSERT_TRUE(eventually([&] { return misses() == ahead_; }));
  Result<void> closed = await<void>([&](auto done) {
    worker_->abort_communicator(ranks[0]->client->id(), ranks[0]->member, "enough", done);
  });
  EXPECT_TRUE(closed.ok());
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteAborted, 0);
  EXPECT_TRUE(eventually([&] { return inspect().operations_pending == 0; }));
  node_.queues_stay_busy = false;
  expect_serving(kLarge, 5);
}

TEST_F(GpuSpeculation, AnyOrderOfPlansGivesTheRightSums) {
  const auto ranks = group(3);
  const auto one = plans(ranks), other = plans(ranks, kOther);
  std::uint32_t random = 1;
  for (int i = 0; i < 400; ++i) {
    random = random * 1'664'525 + 1'013'904'223;
    const bool first = (random >> 28) < 13;
    ASSERT_NO_FATAL_FAILURE(run(ranks, first ? one : other, first ? kLarge : kOther));
    if (i % 40 == 0) rank(0, 4096);
  }
  EXPECT_EQ(node_.sums, 400);
  EXPECT_GT(hits(), 0u);
  EXPECT_GT(misses(), 0u);
}

TEST_F(GpuSpeculation, OneRankThatCallsSomethingElseIsAMismatch) {
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  speculate(ranks, same);
  call(*ranks[0], same[0], 1);
  call(*ranks[1], other[1], 1);
  for (GpuRank* rank : ranks)
    EXPECT_EQ(name_of(reason_from(rank->closed().reason)), name_of(Reason::Mismatch));
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
  expect_serving(kLarge, 5);
}

TEST_F(GpuSpeculation, RemovedPlanDoesNotRun) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  speculate(ranks, same);
  ASSERT_TRUE(remove_plan(*ranks[0], same[0]).ok());
  EXPECT_EQ(node_.gated, 0);
  const PlanId fresh = plan(*ranks[0], kLarge);
  run(ranks, {fresh, same[1]});
  run(ranks, {fresh, same[1]});
}

TEST_F(GpuSpeculation, DeathOfASessionLeavesNothingInTheQueues) {
  const auto ranks = group(2);
  speculate(ranks, plans(ranks));
  const Result<void> closed = await<void>([&](auto done) {
    worker_->close_session(ranks[0]->client->id(), Reason::RemoteDied, "killed", done);
  });
  EXPECT_TRUE(closed.ok());
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 0);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
  expect_serving(kLarge, 5);
}

TEST_F(GpuSpeculation, DeathOfASessionWhosePeerHasCalledIsTold) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  speculate(ranks, same);
  call(*ranks[1], same[1], 1);
  ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 1; }));
  const Result<void> closed = await<void>([&](auto done) {
    worker_->close_session(ranks[0]->client->id(), Reason::RemoteDied, "killed", done);
  });
  EXPECT_TRUE(closed.ok());
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 0);
  EXPECT_EQ(ranks[1]->recv()[0], -1);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
}

TEST_F(GpuSpeculation, LeaveTakesItBack) {
  const auto ranks = group(2);
  speculate(ranks, plans(ranks));
  const Result<void> left = await<void>([&](auto done) {
    worker_->leave_communicator(ranks[0]->client->id(), ranks[0]->member, done);
  });
  EXPECT_TRUE(left.ok());
  EXPECT_EQ(node_.gated, 0);
}

TEST_F(GpuSpeculation, LeaseTakesItBack) {
  serve(20);
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 5; ++i) run(ranks, same);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
  run(ranks, same);
}

TEST_F(GpuSpeculation, MemoryComesAndGoesMeanwhile) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 5; ++i) {
    speculate(ranks, same);
    rank(0, 4096);  // allocates: the fake GPU looks for what waits
    run(ranks, same);
  }
  EXPECT_GE(hits(), 5u);
}

TEST_F(GpuSpeculation, WhatAllHadCalledWhenItWasCancelledRanOnce) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  speculate(ranks, same);
  const int sums = node_.sums;
  // On the GPUs both have called; the worker has not seen it.
  for (std::size_t i = 0; i < 2; ++i) {
    ranks[i]->send()[0] = ranks[i]->send()[kLarge - 1] = 5;
    const std::uint32_t number = ++ranks[i]->posted[1];
    store_word(ranks[i]->box().paths[1].doorbell,
               to_word(Doorbell{.number = number, .plan = same[i].index}));
  }
  rank(0, 4096);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
  for (std::size_t i = 0; i < 2; ++i) {
    store_word(ranks[i]->doorbells.as<HostDoorbells>()->launched,
               to_word(Doorbell{.number = ranks[i]->posted[1], .plan = same[i].index}));
  }
  expect_sum(ranks, 10);
  EXPECT_TRUE(eventually([&] { return inspect().operations_pending == 0; }));
  run(ranks, same);
  EXPECT_EQ(node_.sums, sums + 2);
}

TEST_F(GpuSpeculation, CallsMayComeFasterThanTheWorkerLooks) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  speculate(ranks, same);
  const int sums = node_.sums;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint32_t number = ++ranks[i]->posted[1];
    store_word(ranks[i]->box().paths[1].doorbell,
               to_word(Doorbell{.number = number, .plan = same[i].index}));
  }
  rank(0, 4096);  // the worker sees no doorbell, but the GPUs do
  for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Launched));
  run(ranks, same);
  EXPECT_EQ(node_.sums, sums + 2);
  {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(lost_.empty());
  }
  EXPECT_TRUE(eventually([&] { return inspect().operations_done == 10; }));
}

TEST_F(GpuSpeculation, PlanMayBeRemovedAsSoonAsItsOperationHasEnded) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 6; ++i) run(ranks, same);
  for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(remove_plan(*ranks[i], same[i]).ok());
  const auto fresh = plans(ranks);
  run(ranks, fresh);
}

TEST_F(GpuSpeculation, DoorbellOnTheHostAloneIsEnough) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  speculate(ranks, same);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint32_t number = ++ranks[i]->posted[1];
    ranks[i]->send()[0] = ranks[i]->send()[kLarge - 1] = 3;
    store_word(ranks[i]->doorbells.as<HostDoorbells>()->launched,
               to_word(Doorbell{.number = number, .plan = same[i].index}));
  }
  expect_sum(ranks, 6);
}

TEST_F(GpuSpeculation, TwoCommunicatorsOnTheSameGpusAreServedInAnyOrder) {
  const auto one = group(2), other = group(2);
  const auto ones = plans(one), others = plans(other);
  speculate(one, ones);
  const int before = node_.gated;
  for (int i = 0; i < 3; ++i) run(other, others);
  ASSERT_TRUE(eventually([&] { return node_.gated >= before + 2; }));
  for (int i = 0; i < 10; ++i) {
    call(*one[0], ones[0], 1);
    call(*other[1], others[1], 2);
    call(*other[0], others[0], 2);
    call(*one[1], ones[1], 1);
    expect_sum(one, 2);
    expect_sum(other, 4);
  }
  EXPECT_GE(hits(), 2u);
}

TEST_F(GpuSpeculation, RankThatWaitsForOthersMakesRoomForAnotherCommunicator) {
  const auto one = group(2), other = group(2);
  const auto ones = plans(one), others = plans(other);
  speculate(one, ones);
  call(*one[0], ones[0], 1);
  call(*other[0], others[0], 2);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0 && misses() == ahead_; }));
  call(*other[1], others[1], 2);
  expect_sum(other, 4);
  call(*one[1], ones[1], 1);
  expect_sum(one, 2);
}

TEST_F(GpuSpeculation, DaemonThatStopsLeavesNothingInTheQueues) {
  const auto ranks = group(2);
  speculate(ranks, plans(ranks));
  worker_->stop();
  for (GpuRank* rank : ranks)
    expect_closed(*rank, ErrorCode::Unavailable, Reason::ShuttingDown, kNoRank);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
}

TEST_F(GpuSpeculation, SettingForbidsIt) {
  serve(10'000, false);
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 10; ++i) {
    run(ranks, same);
    EXPECT_EQ(node_.gated, 0);
  }
  EXPECT_EQ(hits(), 0u);
}

}  // namespace
}  // namespace arcomm::test
