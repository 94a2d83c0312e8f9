// Operations that are launched before they are called: what repeats itself is served so, and
// whatever goes otherwise leaves nothing behind in the queues.
#include "tests/unit/daemon/gpu_fixture.h"

namespace arcomm::test {
namespace {

class GpuArmed : public GpuWorkerTest {
 protected:
  static constexpr std::uint64_t kOther = kLarge - 8;

  void SetUp() override { serve(10'000); }
  void serve(std::uint64_t lease_ms, bool armed = true) {
    Settings settings;
    settings.gpu.lease_ms = lease_ms;
    settings.gpu.armed = armed;
    start(settings);
  }
  std::vector<PlanId> plans(const std::vector<GpuRank*>& ranks, std::uint64_t count = kLarge) {
    std::vector<PlanId> made;
    for (GpuRank* rank : ranks) made.push_back(plan(*rank, count));
    return made;
  }
  void call(GpuRank& rank, PlanId plan, float value) {
    rank.send()[0] = rank.send()[kOther - 1] = rank.send()[kLarge - 1] = value;
    rank.recv()[0] = rank.recv()[kOther - 1] = rank.recv()[kLarge - 1] = -1;
    rank.start(plan, Lane::Launched);
  }
  void expect_sum(const std::vector<GpuRank*>& ranks, float sum, std::uint64_t count = kLarge) {
    for (const GpuRank* rank : ranks) {
      ASSERT_TRUE(rank->wait(Lane::Launched));
      EXPECT_EQ(rank->recv()[0], sum);
      EXPECT_EQ(rank->recv()[count - 1], sum);
      if (count == kLarge) continue;
      EXPECT_EQ(rank->recv()[kLarge - 1], -1) << "another plan ran";
    }
  }
  void run(const std::vector<GpuRank*>& ranks, const std::vector<PlanId>& plans,
           std::uint64_t count = kLarge) {
    const auto value = static_cast<float>(++turns_);
    for (std::size_t i = 0; i < ranks.size(); ++i) call(*ranks[i], plans[i], value);
    expect_sum(ranks, value * static_cast<float>(ranks.size()), count);
  }
  // Until the next ones wait in the queues.
  void arm(const std::vector<GpuRank*>& ranks, const std::vector<PlanId>& plans) {
    for (int i = 0; i < 3; ++i) run(ranks, plans);
    const int count = static_cast<int>(ranks.size());
    ASSERT_TRUE(eventually([&] { return node_.gated >= count; }));
    inspect();  // the worker has done all that it does about the last call
    ASSERT_EQ(node_.gated % count, 0);
    ahead_ = static_cast<std::uint64_t>(node_.gated / count);
  }
  std::uint64_t hits() const { return metrics_->armed_hits.value(); }
  std::uint64_t misses() const { return metrics_->armed_misses.value(); }

  int turns_ = 0;
  std::uint64_t ahead_ = 0;  // operations, after arm() of the only communicator
};

TEST_F(GpuArmed, WhatRepeatsItselfIsLaunchedBeforeItIsCalled) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  // What is called while the worker prepares is not foreseen: count from then on.
  for (int i = 0; i < 10; ++i) run(ranks, same);
  ASSERT_EQ(node_.prepared, 2);
  arm(ranks, same);
  const std::uint64_t before = hits();
  for (int i = 0; i < 20; ++i) run(ranks, same);
  EXPECT_TRUE(eventually([&] { return hits() == before + 20; })) << hits() - before;
  EXPECT_EQ(misses(), 0u);
  EXPECT_EQ(node_.sums, 33);
  EXPECT_TRUE(eventually([&] { return inspect().operations_done == 66; }));
}

TEST_F(GpuArmed, TheOneAfterTheNextIsLaunchedTooBeforeTheNextIsCalled) {
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

// All calls are of one plan, so that only the number at the door says which is meant.
TEST_F(GpuArmed, WhatIsLaunchedAheadDoesNotTakeTheCallOfWhatRunsForItsOwn) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 2; ++i) run(ranks, same);
  node_.hold_launches = true;
  for (std::size_t i = 0; i < 2; ++i) call(*ranks[i], same[i], 7);
  ASSERT_TRUE(eventually([&] { return node_.gated == 4; })) << node_.gated;
  node_.hold_launches = false;
  expect_sum(ranks, 14);
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(node_.sums, 3);
  EXPECT_EQ(node_.gated, 4);
  run(ranks, same);
  EXPECT_EQ(node_.sums, 4);
}

TEST_F(GpuArmed, ACycleOfPlansIsFollowed) {
  const auto ranks = group(3);
  const auto one = plans(ranks), other = plans(ranks, kOther);
  for (int i = 0; i < 10; ++i) {
    run(ranks, one);
    run(ranks, other, kOther);
  }
  EXPECT_GE(hits(), 10u);
  EXPECT_EQ(misses(), 0u);
}

TEST_F(GpuArmed, WhatIsCalledInsteadRunsAndNothingElse) {
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  std::uint64_t in_vain = 0;
  for (int round = 0; round < 3; ++round) {
    arm(ranks, same);
    in_vain += ahead_;
    const int sums = node_.sums;
    run(ranks, other, kOther);
    EXPECT_EQ(node_.sums, sums + 1);
  }
  EXPECT_TRUE(eventually([&] { return misses() == in_vain; })) << misses();
}

TEST_F(GpuArmed, WhatIsCalledInsteadWaitsUntilTheCancelledOneHasLeft) {
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  arm(ranks, same);
  const int sums = node_.sums;
  node_.queues_stay_busy = true;
  for (std::size_t i = 0; i < 2; ++i) call(*ranks[i], other[i], 4);
  ASSERT_TRUE(eventually([&] { return misses() == ahead_; }));
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(node_.sums, sums);
  node_.queues_stay_busy = false;
  expect_sum(ranks, 8, kOther);
  run(ranks, same);
}

TEST_F(GpuArmed, RevocationWhileTheCancelledOneLeavesIsTold) {
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  arm(ranks, same);
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

TEST_F(GpuArmed, AnyOrderOfPlansGivesTheRightSums) {
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

TEST_F(GpuArmed, OneRankThatCallsSomethingElseIsAMismatch) {
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  arm(ranks, same);
  call(*ranks[0], same[0], 1);
  call(*ranks[1], other[1], 1);
  for (GpuRank* rank : ranks)
    EXPECT_EQ(name_of(reason_from(rank->closed().reason)), name_of(Reason::Mismatch));
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
  expect_serving(kLarge, 5);
}

TEST_F(GpuArmed, RemovedPlanDoesNotRun) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  arm(ranks, same);
  ASSERT_TRUE(remove_plan(*ranks[0], same[0]).ok());
  EXPECT_EQ(node_.gated, 0);
  const PlanId fresh = plan(*ranks[0], kLarge);
  run(ranks, {fresh, same[1]});
  run(ranks, {fresh, same[1]});
}

TEST_F(GpuArmed, DeathOfASessionLeavesNothingInTheQueues) {
  const auto ranks = group(2);
  arm(ranks, plans(ranks));
  const Result<void> closed = await<void>([&](auto done) {
    worker_->close_session(ranks[0]->client->id(), Reason::RemoteDied, "killed", done);
  });
  EXPECT_TRUE(closed.ok());
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 0);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
  expect_serving(kLarge, 5);
}

TEST_F(GpuArmed, DeathOfASessionWhosePeerHasCalledIsTold) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  arm(ranks, same);
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

TEST_F(GpuArmed, LeaveTakesItBack) {
  const auto ranks = group(2);
  arm(ranks, plans(ranks));
  const Result<void> left = await<void>([&](auto done) {
    worker_->leave_communicator(ranks[0]->client->id(), ranks[0]->member, done);
  });
  EXPECT_TRUE(left.ok());
  EXPECT_EQ(node_.gated, 0);
}

TEST_F(GpuArmed, LeaseTakesItBack) {
  serve(20);
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 5; ++i) run(ranks, same);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
  run(ranks, same);
}

TEST_F(GpuArmed, MemoryComesAndGoesMeanwhile) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 5; ++i) {
    arm(ranks, same);
    rank(0, 4096);  // allocates: the fake GPU looks for what waits
    run(ranks, same);
  }
  EXPECT_GE(hits(), 5u);
}

TEST_F(GpuArmed, WhatAllHadCalledWhenItWasCancelledRanOnce) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  arm(ranks, same);
  const int sums = node_.sums;
  // On the GPUs both have called; the worker has not seen it.
  for (std::size_t i = 0; i < 2; ++i) {
    ranks[i]->send()[0] = ranks[i]->send()[kLarge - 1] = 5;
    const std::uint32_t number = ++ranks[i]->posted[1];
    store_word(ranks[i]->box().lanes[1].door,
               to_word(Door{.number = number, .plan = same[i].index}));
  }
  rank(0, 4096);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(Lane::Launched));
  for (std::size_t i = 0; i < 2; ++i) {
    store_word(ranks[i]->doors.as<HostDoors>()->launched,
               to_word(Door{.number = ranks[i]->posted[1], .plan = same[i].index}));
  }
  expect_sum(ranks, 10);
  EXPECT_TRUE(eventually([&] { return inspect().operations_pending == 0; }));
  run(ranks, same);
  EXPECT_EQ(node_.sums, sums + 2);
}

TEST_F(GpuArmed, CallsMayComeFasterThanTheWorkerLooks) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  arm(ranks, same);
  const int sums = node_.sums;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint32_t number = ++ranks[i]->posted[1];
    store_word(ranks[i]->box().lanes[1].door,
               to_word(Door{.number = number, .plan = same[i].index}));
  }
  rank(0, 4096);  // the worker sees no door, but the GPUs do
  for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(Lane::Launched));
  run(ranks, same);
  EXPECT_EQ(node_.sums, sums + 2);
  {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(lost_.empty());
  }
  EXPECT_TRUE(eventually([&] { return inspect().operations_done == 10; }));
}

TEST_F(GpuArmed, PlanMayBeRemovedAsSoonAsItsOperationHasEnded) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 6; ++i) run(ranks, same);
  for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(remove_plan(*ranks[i], same[i]).ok());
  const auto fresh = plans(ranks);
  run(ranks, fresh);
}

TEST_F(GpuArmed, DoorOnTheHostAloneIsEnough) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  arm(ranks, same);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint32_t number = ++ranks[i]->posted[1];
    ranks[i]->send()[0] = ranks[i]->send()[kLarge - 1] = 3;
    store_word(ranks[i]->doors.as<HostDoors>()->launched,
               to_word(Door{.number = number, .plan = same[i].index}));
  }
  expect_sum(ranks, 6);
}

TEST_F(GpuArmed, TwoCommunicatorsOnTheSameGpusAreServedInAnyOrder) {
  const auto one = group(2), other = group(2);
  const auto ones = plans(one), others = plans(other);
  arm(one, ones);
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

TEST_F(GpuArmed, RankThatWaitsForOthersMakesRoomForAnotherCommunicator) {
  const auto one = group(2), other = group(2);
  const auto ones = plans(one), others = plans(other);
  arm(one, ones);
  call(*one[0], ones[0], 1);
  call(*other[0], others[0], 2);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0 && misses() == ahead_; }));
  call(*other[1], others[1], 2);
  expect_sum(other, 4);
  call(*one[1], ones[1], 1);
  expect_sum(one, 2);
}

TEST_F(GpuArmed, DaemonThatStopsLeavesNothingInTheQueues) {
  const auto ranks = group(2);
  arm(ranks, plans(ranks));
  worker_->stop();
  for (GpuRank* rank : ranks)
    expect_closed(*rank, ErrorCode::Unavailable, Reason::ShuttingDown, kNoRank);
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
}

TEST_F(GpuArmed, WhatIsCalledAgainAndAgainIsPreparedOnce) {
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

TEST_F(GpuArmed, WhatWasPreparedIsNotUsedForAnotherPlanInItsPlace) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 10; ++i) run(ranks, same);
  ASSERT_TRUE(remove_plan(*ranks[0], same[0]).ok());
  const PlanId fresh = plan(*ranks[0], kLarge);
  for (int i = 0; i < 10; ++i) run(ranks, {fresh, same[1]});
  EXPECT_EQ(node_.sums, 20);
}

TEST_F(GpuArmed, WhatCannotBePreparedIsLaunchedAheadAllTheSame) {
  node_.preparing_fails = true;
  const auto ranks = group(2);
  const auto same = plans(ranks);
  for (int i = 0; i < 20; ++i) run(ranks, same);
  EXPECT_TRUE(eventually([&] { return hits() >= 10; })) << hits();
  EXPECT_EQ(node_.prepared, 0);
}

TEST_F(GpuArmed, WhatWasPreparedGoesWithTheCommunicator) {
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

TEST_F(GpuArmed, WhatIsCalledAfterItsGateGaveUpIsLaunchedAgain) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  arm(ranks, same);
  const int sums = node_.sums;
  node_.gates_giving_up = static_cast<int>(2 * ahead_);  // the worker is not told
  for (std::size_t i = 0; i < 2; ++i) call(*ranks[i], same[i], 6);
  expect_sum(ranks, 12);
  EXPECT_EQ(node_.gates_giving_up, 0);
  EXPECT_EQ(node_.sums, sums + 1);
  for (int i = 0; i < 4; ++i) run(ranks, same);
}

TEST_F(GpuArmed, GatesThatGaveUpInACycleHoldUpNobodyForLong) {
  const auto ranks = group(2);
  const std::vector<std::uint64_t> counts{kLarge, kOther, kLarge - 16};
  std::vector<std::vector<PlanId>> cycle;
  for (const std::uint64_t count : counts) cycle.push_back(plans(ranks, count));
  const auto go_round = [&] {
    for (std::size_t i = 0; i < cycle.size(); ++i) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        ranks[rank]->send()[0] = 3;
        ranks[rank]->recv()[0] = -1;
        ranks[rank]->start(cycle[i][rank], Lane::Launched);
      }
      for (GpuRank* rank : ranks) {
        ASSERT_TRUE(rank->wait(Lane::Launched));
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

TEST_F(GpuArmed, NothingToReduceInBetweenIsCounted) {
  const auto ranks = group(2);
  const auto same = plans(ranks), empty = plans(ranks, 0);
  for (int i = 0; i < 5; ++i) {
    run(ranks, same);
    for (std::size_t rank = 0; rank < 2; ++rank) ranks[rank]->start(empty[rank], Lane::Launched);
    for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(Lane::Launched));
    run(ranks, same);
  }
  EXPECT_GT(hits(), 0u);
}

TEST_F(GpuArmed, SettingForbidsIt) {
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
