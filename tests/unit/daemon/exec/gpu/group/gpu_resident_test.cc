// The resident path as the worker sees it: leases, plans, failures, departures.
#include "daemon/plan/recorded_algorithm.h"
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

using GpuResident = GpuWorkerTest;

TEST_F(GpuResident, OperationsAreServedAndCounted) {
  expect_serving(kSmall, 50);
  const WorkerSnapshot shot = inspect();
  EXPECT_EQ(shot.operations_done, 100u);
  ASSERT_EQ(shot.communicators.size(), 1u);
  EXPECT_EQ(shot.communicators[0].operations_done, 50u);
  EXPECT_EQ(shot.communicators[0].ranks[1].next_seq, 50u);
}

TEST_F(GpuResident, LeasePausesTheGridsAndTheNextOperationResumesThem) {
  expect_serving(kSmall);
  EXPECT_TRUE(eventually([&] { return node_.running_grids == 0; }));
  const int resumes = node_.resumes;
  EXPECT_GE(resumes, 2);
  expect_serving(kSmall);
  EXPECT_GT(node_.resumes, resumes);
}

TEST_F(GpuResident, OpenOperationKeepsTheGridBeyondItsLease) {
  const auto ranks = group(2);
  const PlanId first = plan(*ranks[0], kSmall), second = plan(*ranks[1], kSmall);
  ranks[0]->start(first, LaunchPath::Resident);
  ASSERT_TRUE(eventually([&] { return node_.running_grids == 1; }));
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(node_.running_grids, 1);
  ranks[1]->start(second, LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
}

TEST_F(GpuResident, WithoutResidenceTheGridLeavesAfterEachBurst) {
  Settings settings;
  settings.gpu.resident = false;
  start(settings);
  expect_serving(kSmall, 5);
  EXPECT_TRUE(eventually([&] { return node_.running_grids == 0; }));
}

TEST_F(GpuResident, NothingIsComparedAndServedLikeSomething) {
  const auto ranks = group(2);
  for (GpuRank* rank : ranks) rank->start(plan(*rank, 0), LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  ranks[0]->start(plan(*ranks[0], kSmall), LaunchPath::Resident);
  ranks[1]->start(plan(*ranks[1], 0), LaunchPath::Resident);
  // Each rank's grid tells its client whom it differs from, at once and by itself, unless the
  // worker hears of the other's first and tells both of that one.
  for (GpuRank* rank : ranks) {
    const Done closed = rank->closed();
    EXPECT_EQ(name_of(error_code_from(closed.code)), name_of(ErrorCode::FailedPrecondition));
    EXPECT_EQ(name_of(reason_from(closed.reason)), name_of(Reason::Mismatch));
    EXPECT_TRUE(closed.culprit_rank == 0 || closed.culprit_rank == 1) << closed.culprit_rank;
  }
  expect_serving(kSmall);
}

TEST_F(GpuResident, RankThatNeverComesIsNamedToAll) {
  const auto ranks = group(3);
  for (std::size_t i : {0u, 2u})
    ranks[i]->start(plan(*ranks[i], kSmall, milliseconds(100)), LaunchPath::Resident);
  for (GpuRank* rank : ranks) expect_closed(*rank, ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
  EXPECT_TRUE(eventually([&] { return recorded_algorithms() == std::set{kResidentKernel}; }));
  const WorkerSnapshot shot = inspect();
  ASSERT_EQ(shot.communicators.size(), 1u);
  EXPECT_NE(shot.communicators[0].state.find("revoked"), std::string::npos);
  EXPECT_EQ(shot.communicators[0].culprit, 1);
  expect_serving(kSmall);
}

TEST_F(GpuResident, DeathOfASessionEndsWhatItsPeersWaitIn) {
  const auto ranks = group(2);
  ranks[1]->start(plan(*ranks[1], kSmall), LaunchPath::Resident);
  const Result<void> closed = await<void>([&](auto done) {
    worker_->close_session(ranks[0]->client->id(), Reason::RemoteDied, "killed", done);
  });
  EXPECT_TRUE(closed.ok());
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 0);
  EXPECT_GE(node_.aborts, 2);
  expect_serving(kSmall);
}

TEST_F(GpuResident, AbortIsToldToAllAndNothingOfTheMemberRunsAfterIt) {
  const auto ranks = group(2);
  ranks[1]->start(plan(*ranks[1], kSmall), LaunchPath::Resident);
  const Result<void> aborted = await<void>([&](auto done) {
    worker_->abort_communicator(ranks[1]->client->id(), ranks[1]->member, "test", done);
  });
  EXPECT_TRUE(aborted.ok());
  for (GpuRank* rank : ranks) expect_closed(*rank, ErrorCode::Aborted, Reason::RemoteAborted, 1);
}

TEST_F(GpuResident, RankThatLeavesEndsWhatTheOthersHaveYetToCall) {
  const auto ranks = group(2);
  std::vector<PlanId> plans;
  plans.reserve(ranks.size());
  for (GpuRank* rank : ranks) plans.push_back(plan(*rank, kSmall));
  for (std::size_t i = 0; i < 2; ++i) ranks[i]->start(plans[i], LaunchPath::Resident);
  for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Resident));
  const Result<void> left = await<void>([&](auto done) {
    worker_->leave_communicator(ranks[0]->client->id(), ranks[0]->member, done);
  });
  EXPECT_TRUE(left.ok());
  ranks[1]->start(plans[1], LaunchPath::Resident);
  EXPECT_FALSE(ranks[1]->wait(LaunchPath::Resident));
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteAborted, 0);
}

TEST_F(GpuResident, PlanStaysWhileItsOperationIsOpen) {
  const auto ranks = group(2);
  const PlanId first = plan(*ranks[0], kSmall), second = plan(*ranks[1], kSmall);
  ranks[0]->start(first, LaunchPath::Resident);
  const Result<void> refused = remove_plan(*ranks[0], first);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition);
  ranks[1]->start(second, LaunchPath::Resident);
  for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Resident));
  EXPECT_TRUE(remove_plan(*ranks[0], first).ok());
}

// The client's count of its starts is only its word, and buffers go after their plan.
TEST_F(GpuResident, PlanStaysWhileTheGridIsAtItWhateverTheClientSays) {
  Settings settings;
  settings.gpu.lease_ms = 60'000;  // the grid is still there when the second start comes
  start(settings);
  const auto ranks = group(2);
  const PlanId first = plan(*ranks[0], kSmall), second = plan(*ranks[1], kSmall);
  ranks[0]->start(first, LaunchPath::Resident);
  ranks[1]->start(second, LaunchPath::Resident);
  for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Resident));
  store_word(ranks[0]->box().paths[0].doorbell,
             to_word(Doorbell{.number = 2, .plan = first.index}));
  const Result<void> refused = remove_plan(*ranks[0], first);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition);
}

TEST_F(GpuResident, PlanOfARevokedCommunicatorGoesAtOnce) {
  const auto ranks = group(2);
  const PlanId first = plan(*ranks[0], kSmall);
  ranks[0]->start(first, LaunchPath::Resident);
  ranks[1]->open_doorbell(7, PlanId{}, LaunchPath::Launched);
  expect_closed(*ranks[0], ErrorCode::Aborted, Reason::Quarantined, 1);
  EXPECT_TRUE(remove_plan(*ranks[0], first).ok());
}

TEST_F(GpuResident, BothPathsOfOneCommunicatorServeSideBySide) {
  const auto ranks = group(2);
  PlanId small[2], large[2];
  for (std::size_t i = 0; i < 2; ++i) {
    small[i] = plan(*ranks[i], kSmall);
    large[i] = plan(*ranks[i], kLarge);
    ranks[i]->send()[0] = 1;
  }
  for (int round = 0; round < 20; ++round) {
    ranks[0]->start(large[0], LaunchPath::Launched);
    for (std::size_t i = 0; i < 2; ++i) ranks[i]->start(small[i], LaunchPath::Resident);
    for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Resident));
    ranks[1]->start(large[1], LaunchPath::Launched);
    for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Launched));
  }
}

// An innocent kernel of somebody's fills the GPUs: the grids have not started. It was taken for a
// GPU that hangs, and everybody's session ended.
TEST_F(GpuResident, GridThatFindsNoRoomIsNoBrokenGpu) {
  const auto ranks = group(2);
  PlanId plans[2] = {plan(*ranks[0], kSmall), plan(*ranks[1], kSmall)};
  node_.full = true;
  for (std::size_t i = 0; i < 2; ++i) ranks[i]->start(plans[i], LaunchPath::Resident);
  ASSERT_TRUE(eventually([&] { return node_.running_grids == 2; }));
  // Comes, asks for memory and a communicator, and is served on a path that has room.
  const auto since = std::chrono::steady_clock::now();
  expect_serving(kLarge);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(2));
  EXPECT_EQ(ranks[0]->closed(milliseconds(0)).code, 0);
  node_.full = false;
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  EXPECT_FALSE(ended_);
}

TEST_F(GpuResident, OperationWhoseGridFindsNoRoomEndsAtItsDeadlineWithWords) {
  const auto ranks = group(2);
  node_.full = true;
  const PlanId one = plan(*ranks[0], kSmall, milliseconds(100));
  const auto since = std::chrono::steady_clock::now();
  ranks[0]->start(one, LaunchPath::Resident);
  for (GpuRank* rank : ranks) expect_closed(*rank, ErrorCode::DeadlineExceeded, Reason::Timeout, 0);
  EXPECT_GE(std::chrono::steady_clock::now() - since, milliseconds(90));
  EXPECT_FALSE(ended_);
  expect_serving(kLarge);
  node_.full = false;
  expect_serving(kSmall);
}

// Only one that has started, and was told to leave, is expected to.
TEST_F(GpuResident, GridThatDoesNotLeaveForSecondsMeansABrokenGpuAndHoldsUpNobodyMeanwhile) {
  const auto ranks = group(2);
  ranks[0]->start(plan(*ranks[0], kSmall), LaunchPath::Resident);
  ASSERT_TRUE(eventually([&] { return node_.running_grids == 1; }));
  node_.stuck = true;
  std::promise<Result<AllocatedBuffer>> promise;
  worker_->allocate_buffer(
      ranks[0]->client->id(), {.device = "GPU-0", .bytes = 4096},
      [&](Result<AllocatedBuffer> answer) { promise.set_value(std::move(answer)); });
  const auto since = std::chrono::steady_clock::now();
  inspect();
  EXPECT_LT(std::chrono::steady_clock::now() - since, milliseconds(500));
  EXPECT_FALSE(ended_);
  ASSERT_TRUE(eventually([&] { return ended_.load(); }));
  EXPECT_FALSE(promise.get_future().get().ok());
  node_.stuck = false;
}

// Each of so many allocations stopped the grids of all, as fast as they could be asked for.
TEST_F(GpuResident, OneTenantsAllocationsDoNotStopTheGridsOfAnotherAtWill) {
  const auto ranks = group(2);
  const PlanId plans[2] = {plan(*ranks[0], kSmall), plan(*ranks[1], kSmall)};
  ranks[0]->start(plans[0], LaunchPath::Resident);  // keeps a grid awake
  ASSERT_TRUE(eventually([&] { return node_.running_grids == 1; }));
  GpuRank& hostile = rank(2, 4096);
  node_.most_bytes = 1;  // each is tried while quiesced, and nobody has to keep it
  const int pauses = node_.pauses;
  constexpr int kAsked = 1000;
  std::atomic<int> tried{0}, refused{0};
  for (int i = 0; i < kAsked; ++i) {
    const AllocationSpec wanted{.device = "GPU-2", .bytes = 4096};
    worker_->allocate_buffer(hostile.client->id(), wanted, [&](const auto& buffer) {
      ++(buffer.error().reason == Reason::Quota ? refused : tried);
    });
  }
  ranks[1]->start(plans[1], LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  ASSERT_TRUE(eventually([&] { return tried + refused == kAsked; }));
  EXPECT_GT(refused, 0);
  EXPECT_LT(node_.pauses - pauses, kAsked / 2) << "they share their quiescings";
}

TEST_F(GpuResident, FormingACommunicatorStopsTheGridsOfOthersOnlyForAMoment) {
  const auto ranks = group(2);
  PlanId plans[2] = {plan(*ranks[0], kSmall), plan(*ranks[1], kSmall)};
  ranks[0]->start(plans[0], LaunchPath::Resident);
  ASSERT_TRUE(eventually([&] { return node_.running_grids == 1; }));
  expect_serving(kSmall);  // allocates: the fakes check that no grid runs then
  ranks[1]->start(plans[1], LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
}

}  // namespace
}  // namespace arcomm::test
