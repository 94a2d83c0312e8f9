// Ranks that die, abort or leave, with operations under way.
#include "tests/unit/daemon/exec/worker/worker_faults.h"

namespace arcomm::test {
namespace {

TEST_F(WorkerFaults, ADeadSessionEndsItsPeersOperationsAtOnceAndNamesItsRank) {
  auto ranks = group(3);
  ranks[0]->call(4);
  ranks[1]->call(4);
  wait_for_pending(2);
  const auto before = steady_clock::now();
  ASSERT_TRUE(close(*ranks[2], Reason::RemoteDied).ok());
  EXPECT_LT(steady_clock::now() - before, seconds(5));
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::RemoteDied, 2,
             "rank 2 (pid 802) is gone: killed");
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 2, "rank 2 (pid 802)");
  ranks[0]->call(4);
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::Revoked, 2, "revoked: rank 2");
  EXPECT_EQ(ranks[2]->state(), ring::SessionState::Closed);
  expect_serving();
}

TEST_F(WorkerFaults, ADeathInTheMiddleOfALargeOperationNeverReportsAHalfWrittenResult) {
  constexpr std::size_t kBytes = 64 << 20;
  for (int round = 0; round < 3; ++round) {
    auto ranks = group(2, kBytes);
    for (Client* rank : ranks) rank->call(kBytes / 4);
    wait_for_pending(2);
    ASSERT_TRUE(close(*ranks[1], Reason::RemoteDied).ok());
    const auto completion = ranks[0]->next();
    ASSERT_TRUE(completion.has_value());
    if (code_of(*completion) == ErrorCode::Ok) continue;  // it was complete before the death
    EXPECT_EQ(code_of(*completion), ErrorCode::Aborted);
    EXPECT_EQ(reason_of(*completion), Reason::RemoteDied);
    EXPECT_EQ(completion->culprit_rank, 1);
  }
  expect_serving();
}

TEST_F(WorkerFaults, AnAbortEndsTheOperationsOfAllRanks) {
  auto ranks = group(2);
  ranks[0]->call(4);
  wait_for_pending(1);
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->abort_communicator(ranks[1]->id(), ranks[1]->member, "user asked", done);
              }).ok());
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::RemoteAborted, 1,
             "rank 1 aborted the communicator: user asked");
  ranks[1]->call(4);  // its own handle is spent
  expect_end(*ranks[1], ErrorCode::NotFound, Reason::UnknownHandle, kNoRank, "is unknown");
}

TEST_F(WorkerFaults, ARankThatLeavesLetsFinishWhatAllHadCalled) {
  auto ranks = group(2);
  for (Client* rank : ranks) rank->call(4);
  ranks[0]->call(4);  // rank 1 will not call this one
  while (inspect().operations_pending > 1) std::this_thread::yield();
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->leave_communicator(ranks[1]->id(), ranks[1]->member, done);
              }).ok());
  expect_end(*ranks[0], ErrorCode::Ok, Reason::None, kNoRank, "");
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::RemoteAborted, 1,
             "rank 1 left the communicator before seq 1");
  ranks[0]->call(4);
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::RemoteAborted, 1, "rank 1 left");
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done);
              }).ok());
  EXPECT_TRUE(inspect().communicators.empty());
}

TEST_F(WorkerFaults, ASessionThatLeftWhileItWaitedAndThenDiesKeepsNobody) {
  auto ranks = group(2);
  ranks[0]->call(4);
  wait_for_pending(1);
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done);
              }).ok());
  const auto before = steady_clock::now();
  ASSERT_TRUE(close(*ranks[0], Reason::RemoteDied).ok());
  EXPECT_LT(steady_clock::now() - before, seconds(10));  // its deadline is 30 s away
  ranks[1]->call(4);
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::RemoteAborted, 0, "rank 0 left");
  expect_serving();
}

TEST_F(WorkerFaults, NothingWritesAfterAnAbortOrALeaveWasAnswered) {
  constexpr std::size_t kBytes = 64 << 20;
  for (const bool aborts : {true, false}) {
    Client* ranks[] = {&client(), &client()};
    SharedBytes* memory[] = {&ranks[0]->memory(2 * kBytes), &ranks[1]->memory(2 * kBytes)};
    for (Client* rank : ranks) rank->recv_offset = kBytes;
    form({ranks[0], ranks[1]}, aborts ? 1 : 2);
    for (SharedBytes* bytes : memory) std::memset(bytes->data, 0, bytes->bytes);
    for (std::size_t i = 0; i < kBytes / 4; ++i) memory[0]->as<float>()[i] = 1.0f;
    for (Client* rank : ranks) rank->call(kBytes / 4);
    wait_for_pending(2);
    ASSERT_TRUE(await<void>([&](auto done) {
                  if (aborts) {
                    worker_->abort_communicator(ranks[0]->id(), ranks[0]->member, "", done);
                  } else {
                    worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done);
                  }
                }).ok());
    std::memset(memory[0]->data + kBytes, 0x7f, kBytes);
    ASSERT_TRUE(ranks[0]->next().has_value());
    ASSERT_TRUE(ranks[1]->next().has_value());
    std::size_t overwritten = 0;
    for (std::size_t i = kBytes; i < 2 * kBytes; ++i)
      overwritten += memory[0]->data[i] != std::byte{0x7f} ? 1 : 0;
    EXPECT_EQ(overwritten, 0u) << (aborts ? "abort" : "leave");
  }
  expect_serving();
}

}  // namespace
}  // namespace arcomm::test
