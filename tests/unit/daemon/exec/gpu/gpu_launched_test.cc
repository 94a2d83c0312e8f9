// Operations that the worker launches: from a doorbell to the done word, and what everybody hears
// when that goes wrong.
#include <optional>
#include <set>

#include "daemon/plan/in_stream_share.h"
#include "daemon/plan/launch_table_builder.h"
#include "daemon/plan/recorded_algorithm.h"
#include "kernels/launch/launch_blocks.h"
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

using GpuLaunched = GpuWorkerTest;

TEST_F(GpuLaunched, OperationsOfTwoRanksEndOneAfterTheOther) {
  expect_serving(kLarge, 50);
  EXPECT_GE(inspect().operations_done, 100u);
}

// After 2^32 operations a communicator had ended, "used up".
TEST_F(GpuLaunched, OperationsGoOnWhenAScratchHasTakenAllThatItTakes) {
  Settings settings;
  settings.gpu.speculative = false;  // what is launched in vain counts, too: on a busy machine more
  start(settings);
  node_.operations_of_scratch = 4;
  expect_serving(kLarge, 22);
  EXPECT_EQ(node_.started_over, 2 * 5);
}

TEST_F(GpuLaunched, KernelsGetNoMoreBlocksThanTheRanksAskFor) {
  for (const std::uint32_t most : {16u, 1000u, 0u}) {
    most_sms_ = most;
    node_.most_blocks = 0;
    expect_serving(kLarge);
    EXPECT_EQ(node_.most_blocks, most == 16 ? 16u : most_launched_blocks(sms_, kSparedSms)) << most;
  }
}

TEST_F(GpuLaunched, OneRankAloneGetsItsOwnInput) {
  const auto ranks = group(1);
  const PlanId one = plan(*ranks[0], 3), none = plan(*ranks[0], 0);
  ranks[0]->send()[2] = 7;
  ranks[0]->start(one, LaunchPath::Launched);
  ASSERT_TRUE(ranks[0]->wait(LaunchPath::Launched));
  EXPECT_EQ(ranks[0]->recv()[2], 7);
  ranks[0]->start(none, LaunchPath::Launched);
  EXPECT_TRUE(ranks[0]->wait(LaunchPath::Launched));
}

TEST_F(GpuLaunched, SkippedNumberQuarantinesTheSessionAndClosesItsPeers) {
  const auto ranks = group(2);
  ranks[0]->open_doorbell(2, plan(*ranks[0], kLarge), LaunchPath::Launched);
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::Quarantined, 0);
  EXPECT_TRUE(
      eventually([&] { return ranks[0]->client->state() == ring::SessionState::Quarantined; }));
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex_);
    return lost_ == std::vector{Reason::Quarantined};
  }));
  expect_serving(kLarge);
}

TEST_F(GpuLaunched, UnknownPlanIsToldToAllRanks) {
  const auto ranks = group(2);
  ranks[0]->open_doorbell(1, PlanId{4000, 1}, LaunchPath::Launched);
  for (GpuRank* rank : ranks) expect_closed(*rank, ErrorCode::NotFound, Reason::UnknownHandle, 0);
  expect_serving(kLarge);
}

TEST_F(GpuLaunched, PlanOfAnotherRankIsRefused) {
  const auto ranks = group(2);
  ranks[0]->open_doorbell(1, plan(*ranks[1], kLarge), LaunchPath::Launched);
  for (GpuRank* rank : ranks) expect_closed(*rank, ErrorCode::NotFound, Reason::UnknownHandle, 0);
}

TEST_F(GpuLaunched, MismatchIsToldToAllRanks) {
  const auto ranks = group(2);
  ranks[0]->start(plan(*ranks[0], kLarge), LaunchPath::Launched);
  ranks[1]->start(plan(*ranks[1], kLarge - 1), LaunchPath::Launched);
  const Done closed = ranks[0]->closed();
  EXPECT_EQ(name_of(reason_from(closed.reason)), name_of(Reason::Mismatch));
  expect_closed(*ranks[1], ErrorCode::FailedPrecondition, Reason::Mismatch, closed.culprit_rank);
  expect_serving(kLarge);
}

TEST_F(GpuLaunched, NothingOnOneRankAgainstSomethingOnAnotherIsAMismatch) {
  const auto ranks = group(2);
  ranks[0]->start(plan(*ranks[0], kLarge), LaunchPath::Launched);
  ranks[1]->start(plan(*ranks[1], 0), LaunchPath::Launched);
  const Done closed = ranks[0]->closed();
  EXPECT_EQ(name_of(reason_from(closed.reason)), name_of(Reason::Mismatch));
  expect_closed(*ranks[1], ErrorCode::FailedPrecondition, Reason::Mismatch, closed.culprit_rank);
  expect_serving(kLarge);
}

TEST_F(GpuLaunched, NothingOnAllRanksEndsWhenAllHaveCome) {
  const auto ranks = group(2);
  ranks[0]->start(plan(*ranks[0], 0), LaunchPath::Launched);
  ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 1; }));
  ranks[1]->start(plan(*ranks[1], 0), LaunchPath::Launched);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
}

TEST_F(GpuLaunched, RankThatNeverComesIsNamedAtTheDeadline) {
  const auto ranks = group(3);
  for (int rank : {0, 2})
    ranks[static_cast<std::size_t>(rank)]->start(
        plan(*ranks[static_cast<std::size_t>(rank)], kLarge, milliseconds(100)),
        LaunchPath::Launched);
  for (GpuRank* rank : ranks) expect_closed(*rank, ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
  expect_serving(kLarge);
}

TEST_F(GpuLaunched, DeathOfASessionClosesItsPeersAndStopsTheKernels) {
  node_.hold_launches = true;
  const auto ranks = group(2);
  for (GpuRank* rank : ranks) rank->start(plan(*rank, kLarge), LaunchPath::Launched);
  ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 2; }));
  const Result<void> closed = await<void>([&](auto done) {
    worker_->close_session(ranks[0]->client->id(), Reason::RemoteDied, "killed", done);
  });
  EXPECT_TRUE(closed.ok());
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 0);
  EXPECT_TRUE(eventually([&] { return inspect().operations_pending == 0; }));
  node_.hold_launches = false;
  expect_serving(kLarge);
}

TEST_F(GpuLaunched, KernelThatDoesNotEndInTimeClosesTheCommunicator) {
  node_.hold_launches = true;
  const auto ranks = group(2);
  for (GpuRank* rank : ranks)
    rank->start(plan(*rank, kLarge, milliseconds(100)), LaunchPath::Launched);
  for (GpuRank* rank : ranks)
    expect_closed(*rank, ErrorCode::DeadlineExceeded, Reason::Timeout, kNoRank);
  EXPECT_TRUE(eventually([&] { return inspect().operations_pending == 0; }));
}

TEST_F(GpuLaunched, RankThatLeavesIsToldToThoseThatCallLater) {
  const auto ranks = group(2);
  std::vector<PlanId> plans;
  plans.reserve(ranks.size());
  for (GpuRank* rank : ranks) plans.push_back(plan(*rank, kLarge));
  for (std::size_t i = 0; i < 2; ++i) ranks[i]->start(plans[i], LaunchPath::Launched);
  for (GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Launched));
  const Result<void> left = await<void>([&](auto done) {
    worker_->leave_communicator(ranks[0]->client->id(), ranks[0]->member, done);
  });
  EXPECT_TRUE(left.ok());
  ranks[1]->start(plans[1], LaunchPath::Launched);
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteAborted, 0);
}

TEST_F(GpuLaunched, RequestInTheRingIsRefused) {
  const auto ranks = group(2);
  Client& client = *ranks[0]->client;
  client.member = ranks[0]->member;
  client.buffer = ranks[0]->buffer;
  client.recv_offset = ranks[0]->half_bytes;
  client.call(4);
  const auto completion = client.next();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(name_of(code_of(*completion)), name_of(ErrorCode::Unimplemented));
  expect_serving(kLarge);
}

TEST_F(GpuLaunched, PlanNeedsMemoryOfItsRanksGpu) {
  GpuRank& here = rank(0, 4096);
  GpuRank& elsewhere = rank(2, 4096);
  form({&here, &elsewhere});  // the second rank is GPU-1's
  const Result<PlanId> made = try_plan(elsewhere, 4, milliseconds(1000));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(made.error().message.find("another GPU"), std::string::npos) << made.error().message;
}

TEST_F(GpuLaunched, TwoRanksOnOneGpuAreRefused) {
  CommunicatorSpec spec;
  for (Rank i = 0; i < 2; ++i) spec.ranks.push_back({rank(0, 4096).client->id(), i, "GPU-0"});
  const auto formed =
      await<std::vector<MemberId>>([&](auto done) { worker_->form_communicator(spec, done); });
  ASSERT_FALSE(formed.ok());
  EXPECT_EQ(formed.error().code, ErrorCode::InvalidArgument);
}

TEST_F(GpuLaunched, StopOfTheDaemonClosesEveryMailbox) {
  const auto ranks = group(2);
  ranks[0]->start(plan(*ranks[0], kLarge), LaunchPath::Launched);
  ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 1; }));
  worker_->stop();
  for (GpuRank* rank : ranks)
    expect_closed(*rank, ErrorCode::Unavailable, Reason::ShuttingDown, kNoRank);
}

TEST_F(GpuLaunched, GpuInErrorIsToldToAllAndEndsTheWorker) {
  const auto ranks = group(2);
  ranks[0]->start(plan(*ranks[0], kLarge), LaunchPath::Launched);
  ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 1; }));
  node_.sick = true;
  ASSERT_TRUE(eventually([&] { return ended_.load(); })) << "nothing would start a new daemon";
  for (GpuRank* rank : ranks) expect_closed(*rank, ErrorCode::Internal, Reason::None, 0);
  node_.sick = false;  // what it keeps of a sick one only the process's end lets go
}

// Under MPS it may be anybody's kernel that breaks it, at any time.
TEST_F(GpuLaunched, GpuInErrorEndsTheWorkerThatHasNothingToDo) {
  const auto begin = std::chrono::steady_clock::now();
  node_.sick = true;
  ASSERT_TRUE(eventually([&] { return ended_.load(); })) << "the next client would find out";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  // And nothing is answered from then on.
  const Result<WorkerSnapshot> shot =
      await<WorkerSnapshot>([&](auto done) { worker_->inspect(done); });
  ASSERT_FALSE(shot.ok());
  EXPECT_EQ(shot.error().reason, Reason::ShuttingDown);
  node_.sick = false;
}

TEST_F(GpuLaunched, GpuInErrorIsToldToThoseOnOtherGpusToo) {
  const auto broken = group(2);
  const auto others = group(2);
  const PlanId plans[2] = {plan(*others[0], kLarge), plan(*others[1], kLarge)};
  const auto begin = std::chrono::steady_clock::now();
  node_.sick = true;
  for (std::size_t i = 0; i < 2; ++i) others[i]->start(plans[i], LaunchPath::Launched);
  for (GpuRank* rank : broken) EXPECT_NE(rank->closed().code, 0);
  for (GpuRank* rank : others) EXPECT_NE(rank->closed().code, 0);
  ASSERT_TRUE(eventually([&] { return ended_.load(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  node_.sick = false;
}

// Neither a deadline nor an abort ends what hangs, and the worker goes without it.
TEST_F(GpuLaunched, WorkerThatGaveUpAnOperationNeverLooksAtItAgainAndAnswersWhoWaitedForIt) {
  const auto ranks = group(2);
  node_.stands_still = true;
  for (GpuRank* one : ranks) one->start(plan(*one, kLarge), LaunchPath::Launched);
  ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 2; }));
  std::promise<ErrorCode> answer;
  worker_->close_session(ranks[0]->client->id(), Reason::RemoteDied, "killed",
                         [&](const Result<void>& closed) {
                           answer.set_value(closed ? ErrorCode::Ok : closed.error().code);
                         });
  std::future<ErrorCode> answered = answer.get_future();
  inspect();
  const int memories = node_.memories;
  worker_->stop();
  thread_.join();
  ASSERT_EQ(answered.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_EQ(answered.get(), ErrorCode::Unavailable);
  const auto begin = std::chrono::steady_clock::now();
  worker_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(node_.memories, memories) << "memory was let go that kernels may still write";
}

TEST_F(GpuLaunched, RemovedBufferIsLetGoSoon) {
  GpuRank& one = rank(0, 4096);
  ASSERT_EQ(node_.memories, 1);
  const Result<void> removed =
      await<void>([&](auto done) { worker_->remove_buffer(one.client->id(), one.buffer, done); });
  EXPECT_TRUE(removed.ok());
  EXPECT_TRUE(eventually([&] { return node_.memories == 0; }));
}

TEST_F(GpuLaunched, NamedKernelIsLaunchedAndRecordedWhereItTakesTheOperation) {
  Settings settings;
  settings.gpu.algorithm = "stream";
  start(settings);
  expect_serving(kLarge, 20);  // the most of them ahead of their calls
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::Stream});
  // A client has its result a moment before the record is complete.
  EXPECT_TRUE(eventually(
      [&] { return recorded_algorithms() == std::set{recorded(CudaAlgorithm::Stream)}; }));
  settings.gpu.algorithm = "alone";
  start(settings);
  expect_serving(kLarge);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::OneShotLl128});
}

// A kernel of a communicator is what it was formed with, ahead of its calls and not.
class GpuLaunchedFrozen : public GpuLaunched {
 protected:
  void SetUp() override {
    GpuLaunched::SetUp();
    ranks_here_ = group(2);
    for (GpuRank* rank : ranks_here_) plans_.push_back(plan(*rank, kLarge));
  }
  std::set<CudaAlgorithm> run(int times) {
    node_.algorithms();
    for (int i = 0; i < times; ++i) {
      for (std::size_t rank = 0; rank < 2; ++rank)
        ranks_here_[rank]->start(plans_[rank], LaunchPath::Launched);
      for (const GpuRank* rank : ranks_here_) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
    }
    return node_.algorithms();
  }
  static std::optional<CudaAlgorithm> shown(const CommunicatorSnapshot& communicator) {
    std::optional<CudaAlgorithm> last;
    for (const LaunchStretch& stretch : stretches_of(*communicator.launches, DType::Float32))
      if (stretch.most_bytes >= kLarge * sizeof(float) && !last) last = stretch.launched;
    return last;
  }

  std::vector<GpuRank*> ranks_here_;
  std::vector<PlanId> plans_;
};

TEST_F(GpuLaunchedFrozen, TuningBetweenTwoOperationsChangesTheNextCommunicatorAlone) {
  const std::set before{CudaAlgorithm::OneShotLl128};
  EXPECT_EQ(run(1), before);
  auto table = std::make_shared<TuningTable>();
  table->gpu.points = {{2, 1 << 20, CudaAlgorithm::Stream, 5.0}};
  table->gpu.settle();
  worker_->use_tuning(table);
  EXPECT_EQ(run(20), before);
  EXPECT_EQ(shown(inspect().communicators.front()), CudaAlgorithm::OneShotLl128);
  expect_serving(kLarge, 20);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::Stream});
  EXPECT_EQ(run(1), before);
}

TEST_F(GpuLaunchedFrozen, ReloadBetweenTwoOperationsChangesTheNextCommunicatorAlone) {
  const std::set before{CudaAlgorithm::OneShotLl128};
  EXPECT_EQ(run(1), before);
  auto settings = std::make_shared<Settings>(*settings_);
  settings->gpu.algorithm = "stream";
  worker_->use_settings(settings);
  EXPECT_EQ(run(20), before);
  expect_serving(kLarge);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::Stream});
}

TEST_F(GpuLaunched, TableThatIsSwappedInChoosesFromThenOn) {
  expect_serving(kLarge, 20);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::OneShotLl128});
  auto table = std::make_shared<TuningTable>();
  table->gpu.points = {{2, 1 << 20, CudaAlgorithm::Stream, 5.0}};
  table->gpu.settle();
  worker_->use_tuning(table);
  expect_serving(kLarge, 20);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::Stream});
  const std::set both{recorded(CudaAlgorithm::OneShotLl128), recorded(CudaAlgorithm::Stream)};
  EXPECT_TRUE(eventually([&] { return recorded_algorithms() == both; }));
}

TEST_F(GpuLaunched, ReloadChangesTheNamedKernel) {
  auto settings = std::make_shared<Settings>(*settings_);
  settings->gpu.algorithm = "stream";
  worker_->use_settings(settings);
  expect_serving(kLarge);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::Stream});
}

}  // namespace
}  // namespace arcomm::test
