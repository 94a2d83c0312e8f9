// Ranks that go while they have operations: once that was answered, their memory is theirs alone.
#include <gmock/gmock.h>

#include "tests/unit/daemon/exec/worker/worker_fixture.h"

namespace arcomm::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::SizeIs;

constexpr std::size_t kLongBytes = 32 << 20;  // several of these take the worker a while
constexpr int kCalls = 4;

class WorkerLeave : public WorkerTest {
 protected:
  // Two ranks with kCalls large operations each: the first runs, the others are next in turn.
  std::vector<Client*> busy() {
    auto ranks = group(2, kLongBytes);
    for (int i = 0; i < kCalls; ++i) {
      for (Client* rank : ranks) rank->call(kLongBytes / 4);
    }
    while (submitted() < 2ull * kCalls) std::this_thread::yield();
    return ranks;
  }
  std::uint64_t submitted() {
    std::uint64_t sum = 0;
    for (const SessionSnapshot& session : inspect().sessions) sum += session.submitted;
    return sum;
  }
  // What has ended was answered before; so what has no completion now may still write.
  static std::vector<ErrorCode> answers(Client& rank) {
    std::vector<ErrorCode> codes;
    while (const auto completion = rank.next(std::chrono::nanoseconds(0)))
      codes.push_back(code_of(*completion));
    return codes;
  }
};

TEST_F(WorkerLeave, ALeaveIsAnsweredAfterAllThatWasStillToRun) {
  auto ranks = busy();
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done);
              }).ok());
  for (Client* rank : ranks)
    EXPECT_THAT(answers(*rank), AllOf(SizeIs(kCalls), Each(ErrorCode::Ok)));
}

TEST_F(WorkerLeave, AnAbortIsAnsweredAfterAllHasEnded) {
  auto ranks = busy();
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->abort_communicator(ranks[0]->id(), ranks[0]->member, "", done);
              }).ok());
  EXPECT_THAT(answers(*ranks[0]), SizeIs(kCalls));
}

// The first answer may have come too late for who asked.
TEST_F(WorkerLeave, WhoAsksToLeaveAgainIsAnsweredAtTheSameTime) {
  auto ranks = busy();
  worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, {});
  const Result<void> again = await<void>(
      [&](auto done) { worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done); });
  EXPECT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_THAT(answers(*ranks[0]), SizeIs(kCalls));
}

TEST_F(WorkerLeave, ALeaveEndsWhatTheOthersHaveNotCalled) {
  auto ranks = group(2);
  ranks[0]->call(4);
  while (inspect().operations_pending < 1) std::this_thread::yield();
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done);
              }).ok());
  ranks[1]->call(4);
  for (Client* rank : ranks) {
    const auto completion = rank->next();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(reason_of(*completion), Reason::RemoteAborted) << completion->detail;
    EXPECT_EQ(completion->culprit_rank, 0);
    EXPECT_STREQ(completion->detail, "rank 0 left the communicator before seq 0 could run");
  }
}

}  // namespace
}  // namespace arcomm::test
