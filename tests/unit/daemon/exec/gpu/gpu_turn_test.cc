// Whatever GPUs, their driver and other tenants' kernels do: the worker's turns stay short, and
// what is asked meanwhile is held, and not refused.
#include <future>

#include "daemon/exec/gpu/turn_budget.h"
#include "daemon/exec/tune/gpu_tuner.h"
#include "tests/support/machine_pauses.h"
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

TEST(TurnBudget, ManyWaitsOfATurnTakeTogetherWhatOneMay) {
  TurnBudget turn;
  constexpr std::uint64_t kMs = 1'000'000;
  std::uint64_t now = 1000 * kMs;
  std::uint64_t waited = 0;
  for (int wait = 0; wait < 100; ++wait) {
    const std::uint64_t until = turn.until_ns(now, 30 * kMs);
    waited += until - now;
    now = until;
  }
  EXPECT_EQ(waited, TurnBudget::kNs);
  turn.begin_turn();
  EXPECT_EQ(turn.until_ns(now, 30 * kMs), now + 30 * kMs);
}

class GpuTurnTest : public GpuWorkerTest {
 protected:
  std::future<Result<AllocatedBuffer>> allocate(const GpuRank& rank, milliseconds deadline) {
    auto promise = std::make_shared<std::promise<Result<AllocatedBuffer>>>();
    AllocationSpec wanted{.device = "GPU-0", .bytes = 4096};
    if (deadline.count() != 0)
      wanted.deadline_ns = now_ns() + static_cast<std::uint64_t>(deadline.count()) * 1'000'000;
    worker_->allocate_buffer(rank.client->id(), wanted, [promise](Result<AllocatedBuffer> made) {
      promise->set_value(std::move(made));
    });
    return promise->get_future();
  }
  // By an IPC handle, on GPU-0.
  Result<BufferId> enter(const GpuRank& rank, std::weak_ptr<const void>& token) {
    auto kept = std::make_shared<int>();
    token = kept;
    BufferSpec spec;
    spec.handle.kind = MemoryKind::CudaIpc;
    spec.handle.length_bytes = spec.handle.allocation_bytes = 4096;
    spec.device = "GPU-0";
    spec.token = std::move(kept);
    return await<BufferId>(
        [&](auto done) { worker_->add_buffer(rank.client->id(), std::move(spec), done); });
  }
  double slowest_turn_ms() const {
    return static_cast<double>(metrics_->worker_turn_ns.value()) / 1e6;
  }
  // Three times what one may wait in all, beside what the machine may have held it up.
  void expect_short_turns() const {
    EXPECT_LT(slowest_turn_ms(), 100 + pauses_.most_ms(worker_tid_))
        << "of which the machine's pauses are " << pauses_.most_ms(worker_tid_);
  }
  // Whose operation has brought the grids, which leave late: others' kernels have the GPU.
  std::vector<GpuRank*> group_on_a_late_grid() {
    std::vector<GpuRank*> ranks = group(2);
    ranks[0]->start(plan(*ranks[0], kSmall), LaunchPath::Resident);
    EXPECT_TRUE(eventually([&] { return node_.running_grids == 1; }));
    node_.stuck = true;
    return ranks;
  }

 private:
  MachinePauses pauses_;
};

// They were refused at once, Unavailable.
TEST_F(GpuTurnTest, WhatIsAskedWhileAGridLeavesLateIsHeldUntilItHasLeft) {
  const auto ranks = group_on_a_late_grid();
  auto held = allocate(*ranks[0], std::chrono::seconds(60));
  EXPECT_EQ(held.wait_for(milliseconds(300)), std::future_status::timeout);
  inspect();  // others are answered meanwhile
  node_.stuck = false;
  const Result<AllocatedBuffer> made = held.get();
  EXPECT_TRUE(made.ok()) << made.error().to_string();
  ranks[1]->start(plan(*ranks[1], kSmall), LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  expect_short_turns();
}

TEST_F(GpuTurnTest, AtTheDeadlineOfTheRequestItsCallerHearsWhichGpuIsHeldUp) {
  const auto ranks = group_on_a_late_grid();
  const auto since = std::chrono::steady_clock::now();
  const Result<AllocatedBuffer> refused = allocate(*ranks[0], milliseconds(300)).get();
  EXPECT_GE(std::chrono::steady_clock::now() - since, milliseconds(290));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Unavailable);
  EXPECT_NE(refused.error().message.find("GPU-0 is held up"), std::string::npos)
      << refused.error().message;
  node_.stuck = false;
  ranks[1]->start(plan(*ranks[1], kSmall), LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  expect_short_turns();
}

// Beside a GPU that others fill each rank's memory takes 15 ms, and its communicator took them all
// in one turn.
TEST_F(GpuTurnTest, ACommunicatorIsFormedInManyShortTurns) {
  std::vector<GpuRank*> ranks;
  for (int gpu = 0; gpu < 3; ++gpu) ranks.push_back(&rank(gpu, 4096));
  node_.allocation_ms = 25;
  form(ranks);  // 3 ranks x 3 allocations
  node_.allocation_ms = 0;
  expect_short_turns();
  EXPECT_GE(slowest_turn_ms(), 20) << "the worker allocates by itself";
  for (GpuRank* rank : ranks) rank->start(plan(*rank, kSmall), LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
}

TEST_F(GpuTurnTest, ARankThatGoesWhileItsCommunicatorIsFormedLeavesNothingBehind) {
  std::vector<GpuRank*> ranks{&rank(0, 4096), &rank(1, 4096)};
  node_.allocation_ms = 50;
  CommunicatorSpec spec;
  spec.unique_id.fill(std::byte{77});
  for (std::size_t i = 0; i < 2; ++i)
    spec.ranks.push_back({.session = ranks[i]->client->id(),
                          .rank = static_cast<Rank>(i),
                          .device = "GPU-" + std::to_string(i),
                          .visible_gpus = see_[0]});
  std::promise<Result<std::vector<MemberId>>> formed;
  worker_->form_communicator(
      spec, [&](Result<std::vector<MemberId>> members) { formed.set_value(std::move(members)); });
  std::this_thread::sleep_for(milliseconds(60));
  const Result<void> closed = await<void>([&](auto done) {
    worker_->close_session(ranks[1]->client->id(), Reason::RemoteDied, "killed", done);
  });
  EXPECT_TRUE(closed.ok());
  const Result<std::vector<MemberId>> refused = formed.get_future().get();
  node_.allocation_ms = 0;
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Aborted);
  EXPECT_TRUE(eventually([&] { return node_.memories == 1; })) << "rank 0's own buffer is left";
}

// Each waits a moment for what its rank has called and another has not.
TEST_F(GpuTurnTest, PlansThatGoByTheHundredHoldUpNobody) {
  constexpr std::size_t kPlans = 600;
  const auto ranks = group(2);
  std::vector<PlanId> plans;
  for (std::size_t i = 0; i < kPlans; ++i) plans.push_back(plan(*ranks[0], 1 + i % kSmall));
  ranks[0]->start(plan(*ranks[0], kSmall), LaunchPath::Resident);
  ASSERT_TRUE(eventually([&] { return node_.running_grids == 1; }));
  const auto answered = std::make_shared<std::atomic<std::size_t>>(0);
  for (const PlanId one : plans)
    worker_->remove_plan(ranks[0]->client->id(), one,
                         [answered](const Result<void>&) { ++*answered; });
  EXPECT_TRUE(eventually([&] { return *answered == kPlans; }));
  expect_short_turns();
}

// It watched the kernel for seconds, and nobody else was served.
TEST_F(GpuTurnTest, AMeasuredKernelThatHangsHoldsUpNobody) {
  node_.hangs = static_cast<int>(CudaAlgorithm::Stream);
  auto measuring = std::async(std::launch::async,
                              [&] { return tune_gpus(*worker_, 2, {.max_bytes = 4096}, {}); });
  std::size_t asked = 0;
  while (measuring.wait_for(milliseconds(0)) != std::future_status::ready) {
    inspect();
    ++asked;
  }
  EXPECT_TRUE(measuring.get().ok());
  EXPECT_GT(asked, 10u);
  expect_short_turns();
}

TEST_F(GpuTurnTest, AClientThatComesWhileAKernelIsMeasuredThatHangsIsServed) {
  node_.hangs = static_cast<int>(CudaAlgorithm::TwoShot);
  ASSERT_TRUE(
      await<std::uint64_t>([&](auto done) { worker_->begin_measuring(2, 1024, done); }).ok());
  std::promise<Result<double>> measured;
  worker_->measure({CudaAlgorithm::TwoShot, 1024},
                   [&](Result<double> took) { measured.set_value(std::move(took)); });
  std::this_thread::sleep_for(milliseconds(50));
  rank(0, 4096);  // expects its memory
  const Result<double> took = measured.get_future().get();
  ASSERT_FALSE(took.ok());
  EXPECT_EQ(took.error().code, ErrorCode::FailedPrecondition);
  expect_short_turns();
}

// A kernel of another tenant's fills the GPU, and the launch of the grid waits behind it: whatever
// lets go of memory would wait as long (expected of every FakeMemory).
TEST_F(GpuTurnTest, MemoryIsLetGoOnceNoLaunchOfTheGridWaitsForRoom) {
  const auto ranks = group(2);
  const int before = node_.memories;
  GpuRank& other = rank(2, 4096);
  node_.full = true;
  ranks[0]->start(plan(*ranks[0], kSmall), LaunchPath::Resident);
  ASSERT_TRUE(eventually([&] { return node_.running_grids == 1; }));
  const Result<void> removed = await<void>(
      [&](auto done) { worker_->remove_buffer(other.client->id(), other.buffer, done); });
  EXPECT_TRUE(removed.ok());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(node_.memories, before + 1);
  node_.full = false;
  ranks[1]->start(plan(*ranks[1], kSmall), LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  EXPECT_TRUE(eventually([&] { return node_.memories == before; }));
  expect_short_turns();
}

// The same of a kernel by which the daemon tries whether there is room to clear memory: a turn
// lasted as long as the other tenant's kernel.
TEST_F(GpuTurnTest, MemoryIsLetGoOnceNoKernelThatClearsWaitsForRoom) {
  GpuRank& one = rank(2, 4096);
  const int before = node_.memories;
  node_.full = true;
  GpuRank& other = rank(0, 4096);
  const Result<void> removed =
      await<void>([&](auto done) { worker_->remove_buffer(one.client->id(), one.buffer, done); });
  EXPECT_TRUE(removed.ok());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(node_.memories, before + 1);
  const std::vector<GpuRank*> ranks{&other, &rank(1, 4096)};
  form(ranks);  // what joins is served meanwhile
  node_.full = false;
  EXPECT_TRUE(eventually([&] { return node_.memories >= before; }));
  for (GpuRank* rank : ranks) rank->start(plan(*rank, kSmall), LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  expect_short_turns();
}

// A client that names more than its memory has held the worker up for as long as the GPU was full.
TEST_F(GpuTurnTest, WhatAFailedImportHadMappedIsLetGoOnceNoKernelThatClearsWaitsForRoom) {
  GpuRank& one = rank(2, 4096);
  node_.full = true;
  rank(0, 4096);  // a kernel is to clear its memory, and waits
  const int before = node_.memories;
  node_.imports_fail = true;
  std::weak_ptr<const void> token;
  const Result<BufferId> added = enter(one, token);
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(node_.memories, before + 1);
  EXPECT_FALSE(token.expired()) << "it would not be charged for";
  node_.full = false;
  EXPECT_TRUE(eventually([&] { return node_.memories == before; }));
  EXPECT_TRUE(eventually([&] { return token.expired(); }));
  expect_short_turns();
}

TEST_F(GpuTurnTest, ReleasedMemoryKeepsItsTokenUntilItHasGone) {
  GpuRank& one = rank(2, 4096);
  const int before = node_.memories;
  std::weak_ptr<const void> of_entered, of_allocated;
  const Result<BufferId> entered = enter(one, of_entered);
  ASSERT_TRUE(entered.ok()) << entered.error().to_string();
  auto kept = std::make_shared<int>();
  of_allocated = kept;
  AllocationSpec wanted{.device = "GPU-0", .bytes = 4096, .token = std::move(kept)};
  const Result<AllocatedBuffer> allocated = await<AllocatedBuffer>([&](auto done) {
    worker_->allocate_buffer(one.client->id(), std::move(wanted), std::move(done));
  });
  ASSERT_TRUE(allocated.ok()) << allocated.error().to_string();
  node_.full = true;
  rank(1, 4096);  // a kernel is to clear its memory, and waits
  for (const BufferId buffer : {*entered, allocated->buffer}) {
    const Result<void> removed =
        await<void>([&](auto done) { worker_->remove_buffer(one.client->id(), buffer, done); });
    EXPECT_TRUE(removed.ok());
  }
  const std::uint64_t soon = now_ns() + 100'000'000;
  const Result<void> held_up =
      await<void>([&](auto done) { worker_->let_go_of_released(0, soon, done); });
  EXPECT_EQ(held_up.error().code, ErrorCode::FailedPrecondition);
  EXPECT_NE(held_up.error().message.find("fills a GPU"), std::string::npos)
      << held_up.error().message;
  EXPECT_EQ(node_.memories, before + 3);
  EXPECT_FALSE(of_entered.expired());
  EXPECT_FALSE(of_allocated.expired());
  node_.full = false;
  const Result<void> gone =
      await<void>([&](auto done) { worker_->let_go_of_released(0, 0, done); });
  EXPECT_TRUE(gone.ok()) << gone.error().to_string();
  EXPECT_EQ(node_.memories, before + 1);
  EXPECT_TRUE(of_entered.expired());
  EXPECT_TRUE(of_allocated.expired());
  expect_short_turns();
}

// A peer that stays may have kernels at work in it.
TEST_F(GpuTurnTest, ARanksMailboxKeepsItsTokenUntilAllRanksHaveLeftAndItHasGone) {
  std::vector<std::weak_ptr<const void>> tokens;
  for (int rank = 0; rank < 2; ++rank) {
    tokens_.push_back(std::make_shared<int>());
    tokens.emplace_back(tokens_.back());
  }
  const auto ranks = group(2);
  const auto leave = [&](const GpuRank& one) {
    return await<void>(
        [&](auto done) { worker_->leave_communicator(one.client->id(), one.member, done); });
  };
  const auto let_go = [&] {
    return await<void>(
        [&](auto done) { worker_->let_go_of_released(0, now_ns() + 100'000'000, done); });
  };
  ASSERT_TRUE(leave(*ranks[0]).ok());
  EXPECT_TRUE(let_go().ok()) << "nothing was released";
  EXPECT_FALSE(tokens[0].expired()) << "its peer is there";
  node_.full = true;
  rank(2, 4096);  // a kernel is to clear its memory, and waits
  ASSERT_TRUE(leave(*ranks[1]).ok());
  EXPECT_EQ(let_go().error().code, ErrorCode::FailedPrecondition);
  for (const auto& token : tokens) EXPECT_FALSE(token.expired()) << "it would not be charged for";
  node_.full = false;
  for (const auto& token : tokens) EXPECT_TRUE(eventually([&] { return token.expired(); }));
  expect_short_turns();
}

// It was tried every 20 ms until its deadline, before all else that its user asked for.
TEST_F(GpuTurnTest, WhoAsksForWhatCannotGoHearsSoSoonAndStopsNoGpu) {
  const auto ranks = group(2);
  ranks[0]->start(plan(*ranks[0], kSmall), LaunchPath::Resident);
  ASSERT_TRUE(eventually([&] { return node_.running_grids == 1; }));
  GpuRank& one = rank(2, 4096);
  node_.full = true;
  rank(1, 4096);  // a kernel is to clear its memory, and waits
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->remove_buffer(one.client->id(), one.buffer, done);
              }).ok());
  const int pauses = node_.pauses;
  const Result<void> held_up =
      await<void>([&](auto done) { worker_->let_go_of_released(0, 0, done); });
  EXPECT_EQ(held_up.error().code, ErrorCode::FailedPrecondition);
  EXPECT_EQ(node_.pauses, pauses);
  node_.full = false;
  ranks[1]->start(plan(*ranks[1], kSmall), LaunchPath::Resident);
  for (GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  expect_short_turns();
}

// A client that asks for more and more beside a full GPU, and for none of it twice.
TEST_F(GpuTurnTest, MemoryThatIsKeptToBeClearedKeepsItsTokenUntilItHasGone) {
  GpuRank& one = rank(2, 4096);
  const int before = node_.memories;
  node_.clears_late = true;
  auto kept = std::make_shared<int>();
  const std::weak_ptr<const void> token = kept;
  AllocationSpec wanted{.device = "GPU-0",
                        .bytes = 4096,
                        .deadline_ns = now_ns() + 1'000'000'000,
                        .token = std::move(kept)};
  const Result<AllocatedBuffer> refused = await<AllocatedBuffer>([&](auto done) {
    worker_->allocate_buffer(one.client->id(), std::move(wanted), std::move(done));
  });
  EXPECT_EQ(refused.error().code, ErrorCode::Unavailable);
  EXPECT_GT(node_.memories, before);
  EXPECT_FALSE(token.expired()) << "it would not be charged for";
  const Result<void> kept_on =
      await<void>([&](auto done) { worker_->let_go_of_released(0, 0, done); });
  ASSERT_FALSE(kept_on.ok()) << "as if nothing were in the way of another charge";
  EXPECT_EQ(kept_on.error().code, ErrorCode::Unavailable);
  EXPECT_NE(kept_on.error().message.find("could not be cleared"), std::string::npos)
      << kept_on.error().message;
  node_.clears_late = false;
  EXPECT_TRUE(eventually([&] { return node_.memories == before; }));
  EXPECT_TRUE(eventually([&] { return token.expired(); }));
}

// Most of the time the last zeros are on their way. It was refused at once, and for 200 ms.
TEST_F(GpuTurnTest, WhoLacksRoomWaitsForWhatIsKeptToBeClearedAsForWhatWasReleased) {
  GpuRank& one = rank(2, 4096);
  const int before = node_.memories;
  node_.clears_late = true;
  auto kept = std::make_shared<int>();
  const std::weak_ptr<const void> token = kept;
  AllocationSpec wanted{.device = "GPU-0",
                        .bytes = 4096,
                        .deadline_ns = now_ns() + 30'000'000,
                        .token = std::move(kept)};
  const Result<AllocatedBuffer> refused = await<AllocatedBuffer>([&](auto done) {
    worker_->allocate_buffer(one.client->id(), std::move(wanted), std::move(done));
  });
  ASSERT_EQ(refused.error().code, ErrorCode::Unavailable);
  node_.late_looks = 3;
  const Result<void> gone =
      await<void>([&](auto done) { worker_->let_go_of_released(0, 0, done); });
  EXPECT_TRUE(gone.ok()) << gone.error().to_string();
  EXPECT_TRUE(token.expired());
  EXPECT_EQ(node_.memories, before);
  expect_short_turns();
}

TEST_F(GpuTurnTest, WhatIsReleasedGoesWhenItIsAskedForInAsManyTurnsAsItTakes) {
  GpuRank& one = rank(2, 4096);
  std::vector<BufferId> buffers;
  std::vector<std::weak_ptr<const void>> tokens(300);
  for (std::weak_ptr<const void>& token : tokens) {
    const Result<BufferId> entered = enter(one, token);
    ASSERT_TRUE(entered.ok()) << entered.error().to_string();
    buffers.push_back(*entered);
  }
  for (const BufferId buffer : buffers)
    worker_->remove_buffer(one.client->id(), buffer, [](const Result<void>&) {});
  const Result<void> gone =
      await<void>([&](auto done) { worker_->let_go_of_released(0, 0, done); });
  EXPECT_TRUE(gone.ok()) << gone.error().to_string();
  EXPECT_TRUE(std::ranges::all_of(tokens, [](const auto& token) { return token.expired(); }));
  expect_short_turns();
}

// The end waited for what hangs without a turn, and the watchdog saw a worker that stands still.
TEST_F(GpuTurnTest, AtTheEndTheWorkerTakesTurnsWhileItWaitsForWhatHangs) {
  const auto ranks = group(2);
  node_.hold_launches = node_.stands_still = true;
  for (GpuRank* rank : ranks) rank->start(plan(*rank, kLarge), LaunchPath::Launched);
  ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 2; }));
  const std::uint64_t before = worker_->progress();
  worker_->stop();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_FALSE(ended_);
  EXPECT_GT(worker_->progress(), before + 100);
  node_.stands_still = false;
  EXPECT_TRUE(eventually([&] { return ended_.load(); }));
}

}  // namespace
}  // namespace arcomm::test
