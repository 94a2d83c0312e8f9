#include "client/src/gpu/gpu_member.h"

#include <gtest/gtest.h>

#include "tests/unit/client/gpu/gpu_member_fixture.h"

namespace arcomm::client {
namespace {

const Error kFull{ErrorCode::ResourceExhausted, Reason::Quota, "no plan is left", -1};

TEST_F(GpuMemberTest, AsksTheDaemonOnceForWhatIsRepeated) {
  int stream = 0;
  ASSERT_TRUE(all_reduce(64, &stream).ok() && all_reduce(64, &stream).ok());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].send_offset_bytes, 256u);
  EXPECT_EQ(asked[0].recv_offset_bytes, 0u);
  EXPECT_EQ(asked[0].timeout_ms, 1000u);
  ASSERT_EQ(gpu->starts.size(), 2u);
  EXPECT_EQ(gpu->starts[1].stream, &stream);
  EXPECT_EQ(gpu->starts[1].post.plan, 1u);
  EXPECT_EQ(gpu->starts[1].post.timeout_ns, 1'000'000'000u);
}

TEST_F(GpuMemberTest, TakesThePathOfTheSize) {
  ASSERT_TRUE(all_reduce(kMostResident / 4).ok() && all_reduce(kMostResident / 4 + 1).ok());
  EXPECT_EQ(gpu->starts[0].post.path, LaunchPath::Resident);
  EXPECT_EQ(gpu->starts[1].post.path, LaunchPath::Launched);
}

TEST_F(GpuMemberTest, HandsNothingToTheDaemonTooSoThatItIsCompared) {
  ASSERT_TRUE(member->all_reduce(call(0), {}, {}, 1000, nullptr, deadline()).ok());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_TRUE(asked[0].spec.is_empty());
  EXPECT_FALSE(asked[0].send_buffer.valid() || asked[0].recv_buffer.valid());
  ASSERT_EQ(gpu->starts.size(), 1u);
  EXPECT_EQ(gpu->starts[0].post.path, LaunchPath::Resident) << "where small operations are";
}

TEST_F(GpuMemberTest, PutsStartsOnSeveralStreamsInTheOrderOfTheCalls) {
  int first = 0, second = 0;
  ASSERT_TRUE(all_reduce(1, &first).ok() && all_reduce(1, &first).ok());
  EXPECT_EQ(gpu->starts[1].post.order, StartOrder::Counted) << "its stream has an order already";
  ASSERT_TRUE(all_reduce(1, &second).ok() && all_reduce(1 << 20, &first).ok());
  EXPECT_EQ(gpu->starts[2].post.order, StartOrder::Taken);
  EXPECT_EQ(gpu->starts[2].post.called_before, 2u);
  EXPECT_EQ(gpu->starts[3].post.order, StartOrder::Taken);
  EXPECT_EQ(gpu->starts[3].post.called_before, 0u) << "the other path counts for itself";
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1, &second).ok());
  EXPECT_EQ(gpu->starts[4].post.order, StartOrder::AsItComes);
}

// Else two graphs of one shape, replayed in another order on each rank, are mixed in silence.
TEST_F(GpuMemberTest, NumbersWhatGraphsHoldInTheOrderOfCaptureWhateverTheirPaths) {
  ASSERT_TRUE(all_reduce(1).ok());
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok() && all_reduce(1 << 20).ok());
  gpu->capturing = false;
  ASSERT_TRUE(all_reduce(1).ok());
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok());
  std::vector<std::uint32_t> identities;
  for (const auto& start : gpu->starts) identities.push_back(start.post.identity);
  EXPECT_EQ(identities, (std::vector<std::uint32_t>{kNoIdentity, 1, 2, kNoIdentity, 3}));
}

TEST_F(GpuMemberTest, GivesUpFinishedPlansWhenTheDaemonHasNoRoom) {
  ASSERT_TRUE(all_reduce(1).ok() && all_reduce(2).ok());
  FakeGpu::run(gpu->starts[0]);  // the second one is still to come
  refusals = {kFull};
  EXPECT_TRUE(all_reduce(3).ok());
  ASSERT_EQ(destroyed.size(), 1u);
  EXPECT_EQ(destroyed[0].index, 1u);
  EXPECT_EQ(replaced, 1) << "another one comes in its place";
}

// So that calls to the daemon become rare, whatever the number of addresses.
TEST_F(GpuMemberTest, PaysAheadForAsManyPlansAsItHas) {
  for (std::uint64_t count = 1; count <= 5; ++count) {
    ASSERT_TRUE(all_reduce(count).ok());
    EXPECT_EQ(asked.back().ahead, count - 1);
  }
}

TEST_F(GpuMemberTest, KeepsPlansThatAGraphHasCaptured) {
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok());
  gpu->capturing = false;
  refusals = {kFull};
  const Status refused = all_reduce(2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::ResourceExhausted);
  EXPECT_TRUE(destroyed.empty());
}

TEST_F(GpuMemberTest, DropsThePlansOfABufferThatGoes) {
  ASSERT_TRUE(all_reduce(1).ok());
  const Result<GpuPlanKey> held = member->hold(call(2), send, recv, 1000, deadline());
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(member->drop_plans_of(recv.id, deadline()).ok());
  EXPECT_EQ(destroyed.size(), 2u);
  EXPECT_EQ(member->start(*held, nullptr, deadline()).error().code, ErrorCode::FailedPrecondition);
  member->let_go(*held);  // of what is gone: nothing happens
}

TEST_F(GpuMemberTest, SaysWhichPlansOfABufferSomebodyNeeds) {
  const IsThere all = [](std::uintptr_t, std::uint64_t) { return true; };
  const IsThere none = [](std::uintptr_t, std::uint64_t) { return false; };
  EXPECT_TRUE(member->may_drop_plans_of(send.id, all, deadline())) << "there is none";
  ASSERT_TRUE(all_reduce(1).ok());
  EXPECT_FALSE(member->may_drop_plans_of(send.id, all, deadline())) << "under way";
  EXPECT_TRUE(member->may_drop_plans_of(send.id, none, deadline())) << "on memory that is gone";
  EXPECT_TRUE(member->may_drop_plans_of({9, 1}, all, deadline())) << "another buffer's";
  FakeGpu::run(gpu->starts[0]);
  EXPECT_TRUE(member->may_drop_plans_of(send.id, all, deadline())) << "it has ended";
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(2).ok());
  EXPECT_FALSE(member->may_drop_plans_of(recv.id, all, deadline())) << "a graph may come";
  const IsThere but_its_memory = [this](std::uintptr_t address, std::uint64_t bytes) {
    return address != recv.range.base || bytes != 2 * sizeof(float);
  };
  EXPECT_TRUE(member->may_drop_plans_of(recv.id, but_its_memory, deadline()));
}

TEST_F(GpuMemberTest, DropsThePlansThatNobodyNeedsAndAsksAsItDoes) {
  const IsThere all = [](std::uintptr_t, std::uint64_t) { return true; };
  const auto drop = [&] { return member->drop_unneeded_plans_of(send.id, all, deadline()); };
  ASSERT_TRUE(all_reduce(1).ok());
  FakeGpu::run(gpu->starts[0]);
  ASSERT_TRUE(member->may_drop_plans_of(send.id, all, deadline()));
  ASSERT_TRUE(all_reduce(1).ok());  // another thread's, after that was asked
  Result<bool> dropped = drop();
  ASSERT_TRUE(dropped.ok());
  EXPECT_FALSE(*dropped);
  EXPECT_TRUE(destroyed.empty()) << "its start rings with the plan's index";
  FakeGpu::run(gpu->starts[1]);
  dropped = drop();
  EXPECT_TRUE(dropped.ok() && *dropped);
  EXPECT_EQ(destroyed.size(), 1u);
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok());
  EXPECT_EQ(asked.size(), 2u) << "what comes later gets a plan of its own";
  dropped = drop();
  ASSERT_TRUE(dropped.ok());
  EXPECT_FALSE(*dropped);
}

TEST_F(GpuMemberTest, StartsNoPlanThatMayBeGone) {
  const Result<GpuPlanKey> held = member->hold(call(1), send, recv, 1000, deadline());
  ASSERT_TRUE(held.ok());
  destroy_answer = error(ErrorCode::DeadlineExceeded, Reason::Timeout, "no answer");
  EXPECT_EQ(member->drop_plans_of(send.id, deadline()).error().reason, Reason::Timeout);
  EXPECT_EQ(member->start(*held, nullptr, deadline()).error().reason, Reason::UnknownHandle);
  EXPECT_TRUE(gpu->starts.empty());
  destroy_answer = error(ErrorCode::NotFound, Reason::UnknownHandle, "the daemon had done it");
  ASSERT_TRUE(all_reduce(1).ok());
  ASSERT_EQ(destroyed.size(), 2u);
  EXPECT_EQ(destroyed[1], destroyed[0]);
  ASSERT_EQ(gpu->starts.size(), 1u);
  EXPECT_EQ(gpu->starts[0].post.plan, 2u);
}

TEST_F(GpuMemberTest, APlanThatTheDaemonKeepsServesOn) {
  ASSERT_TRUE(all_reduce(1).ok());
  destroy_answer = error(ErrorCode::FailedPrecondition, Reason::BadValue, "it is used");
  EXPECT_FALSE(member->drop_plans_of(send.id, deadline()).ok());
  ASSERT_TRUE(all_reduce(1).ok());
  EXPECT_EQ(asked.size(), 1u);
}

TEST_F(GpuMemberTest, SaysThatAHeldPlanIsNeeded) {
  const IsThere all = [](std::uintptr_t, std::uint64_t) { return true; };
  const Result<GpuPlanKey> held = member->hold(call(2), send, recv, 1000, deadline());
  ASSERT_TRUE(held.ok());
  EXPECT_FALSE(member->may_drop_plans_of(recv.id, all, deadline()));
  member->let_go(*held);
  EXPECT_TRUE(member->may_drop_plans_of(recv.id, all, deadline()));
}

TEST_F(GpuMemberTest, LeavesNoPlanBehindThatWouldHoldItsBuffers) {
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok());
  gpu->capturing = false;
  ASSERT_TRUE(all_reduce(2).ok());
  member->close(error(ErrorCode::Aborted, Reason::Revoked, "the communicator was destroyed"));
  ASSERT_TRUE(member->drop_plans(deadline()).ok());
  EXPECT_EQ(destroyed.size(), 2u);
}

TEST_F(GpuMemberTest, TellsWhatItsKernelsHaveRecorded) {
  EXPECT_EQ(member->look().code, ErrorCode::Ok);
  words->failed = to_word(Done{.number = 3,
                               .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                               .reason = static_cast<std::uint8_t>(Reason::Timeout),
                               .culprit_rank = 1});
  const Error said = member->look();
  EXPECT_EQ(said.code, ErrorCode::DeadlineExceeded);
  EXPECT_EQ(said.reason, Reason::Timeout);
  EXPECT_EQ(said.rank, 1);
  EXPECT_EQ(all_reduce(1).error().reason, Reason::Timeout) << "nothing more may be started";
  EXPECT_TRUE(gpu->starts.empty());
}

TEST_F(GpuMemberTest, BelievesTheDaemonThatCommunicatorsCrossedWhereItsKernelSawADeadlinePass) {
  const Done failed{.number = 3,
                    .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                    .reason = static_cast<std::uint8_t>(Reason::Timeout),
                    .culprit_rank = 1};
  Done closed = failed;
  closed.reason = static_cast<std::uint8_t>(Reason::Crossed);
  words->failed = to_word(failed);
  int reads = 0;
  gpu->before_read = [&] {
    if (++reads == 3) words->closed = to_word(closed);
  };
  const Error said = member->look();
  EXPECT_EQ(said.code, ErrorCode::DeadlineExceeded);
  EXPECT_EQ(said.reason, Reason::Crossed);
}

TEST_F(GpuMemberTest, ClosesItsMailboxWhenTheDaemonIsLost) {
  member->close(error(ErrorCode::Unavailable, Reason::DaemonLost, "the daemon is gone"));
  const Done closed = done_from(words->closed);
  EXPECT_EQ(closed.code, static_cast<std::uint8_t>(ErrorCode::Unavailable));
  EXPECT_EQ(closed.reason, static_cast<std::uint8_t>(Reason::DaemonLost));
  EXPECT_EQ(closed.culprit_rank, -1);
  EXPECT_EQ(all_reduce(1).error().reason, Reason::DaemonLost);
}

TEST_F(GpuMemberTest, ClosesLaterAGpuThatWasStuck) {
  const Error why = error(ErrorCode::Unavailable, Reason::DaemonLost, "the daemon is gone");
  gpu->stuck = true;
  member->close(why);
  EXPECT_EQ(words->closed, 0u);
  gpu->stuck = false;
  member->close(why);
  EXPECT_NE(words->closed, 0u);
}

TEST_F(GpuMemberTest, UnmapsItsMailboxOnceEveryStartHasEnded) {
  ASSERT_TRUE(all_reduce(1).ok());
  FakeGpu::run(gpu->starts[0]);
  member.reset();
  EXPECT_EQ(gpu->open_mappings, 0);
}

TEST_F(GpuMemberTest, LeavesItsMailboxMappedWhileAStartMayStillCome) {
  ASSERT_TRUE(all_reduce(1).ok());
  member.reset();
  EXPECT_EQ(gpu->open_mappings, 2);
  EXPECT_NE(words->closed, 0u) << "what comes must not wait";
}

TEST(GpuMailbox, RefusesADaemonWhoseMailboxIsTooSmall) {
  FakeGpu gpu;
  const auto opened =
      GpuMailbox::open(gpu, memfd(kMailboxBytes), kMailboxBytes, memfd(sizeof(HostPages)));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().reason, Reason::Version);
}

}  // namespace
}  // namespace arcomm::client
