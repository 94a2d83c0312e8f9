// A session's operations against a daemon that is this test: it holds the other ends of the rings.
#include "client/src/host/rings/submission.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/client/host/rings/submission_fixture.h"

namespace arcomm::client {
namespace {

TEST_F(SubmissionTest, RequestsLeaveInTheOrderOfTheCallsAndEndWithTheirCompletions) {
  const auto member = joined();
  Operation& first = submitted(member);
  Operation& second = submitted(member);
  const auto requests = left_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].seq, 0u);
  EXPECT_EQ(requests[1].seq, 1u);
  complete(requests[1]);
  work();
  EXPECT_FALSE(first.done.load());
  EXPECT_TRUE(second.done.load());
  complete(requests[0]);
  work();
  EXPECT_TRUE(first.done.load());
  EXPECT_EQ(member->active.load(), 0u);
}

TEST_F(SubmissionTest, AMemberLeavesItsPeersTheirShareOfTheRing) {
  const auto first = joined(), second = joined();
  for (int i = 0; i < 6; ++i) submitted(first);
  const auto requests = left_requests();
  ASSERT_EQ(requests.size(), kSlots / 2);
  submitted(second);
  EXPECT_EQ(left_requests().size(), 1u);
  complete(requests[0]);
  work();
  const auto next = left_requests();
  ASSERT_EQ(next.size(), 1u) << "room for one more of the first";
  EXPECT_EQ(next[0].member, first->id.bits());
  EXPECT_EQ(next[0].seq, kSlots / 2);
}

TEST_F(SubmissionTest, ACompletionThatNobodyWaitsForAnyMoreEndsNothing) {
  const auto member = joined();
  submitted(member);
  const auto requests = left_requests();
  complete(requests[0]);
  work();
  Operation& next = submitted(member);  // in the same entry, of the next generation
  const auto again = left_requests();
  ASSERT_EQ(static_cast<std::uint32_t>(again[0].ticket),
            static_cast<std::uint32_t>(requests[0].ticket));
  complete(requests[0]);
  ring::WorkRequest wild = again[0];
  wild.ticket = kSlots;
  complete(wild);
  work();
  EXPECT_FALSE(next.done.load());
}

TEST_F(SubmissionTest, AnOperationThatFailsWholeLeavesItsMemberAsItWas) {
  const auto member = joined();
  Operation& failed = submitted(member);
  complete(left_requests()[0], ErrorCode::Aborted);
  work();
  ASSERT_TRUE(failed.done.load());
  EXPECT_EQ(failed.outcome.error.reason, Reason::RemoteDied);
  EXPECT_EQ(submission_.failure_of(*member).code, ErrorCode::Ok);
  EXPECT_TRUE(aborted_.empty());
}

TEST_F(SubmissionTest, AnOperationThatFailsPartWayTakesItsMemberAlongAndThePeersHearOfIt) {
  const auto member = joined();
  Operation& failed = submitted(member, 3);
  Operation& behind = operation(member);
  const auto requests = left_requests();
  ASSERT_EQ(requests.size(), 3u);
  complete(requests[0], ErrorCode::Aborted);
  work();
  EXPECT_FALSE(failed.done.load()) << "two of its requests are in flight";
  EXPECT_EQ(aborted_, std::vector<MemberId>{member->id});
  const Status refused = submission_.submit(behind);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, Reason::Revoked);
  complete(requests[1]);
  complete(requests[2]);
  work();
  ASSERT_TRUE(failed.done.load());
  EXPECT_EQ(failed.outcome.error.reason, Reason::RemoteDied);
}

TEST_F(SubmissionTest, ASessionThatIsShutOutEndsWhatIsInFlightAndWhatHasNotLeft) {
  const auto member = joined();
  std::vector<Operation*> open;
  for (std::uint32_t i = 0; i < kSlots + 2; ++i) open.push_back(&submitted(member, 2));
  segment_.control().session_reason.store(static_cast<std::uint32_t>(Reason::Corrupt));
  segment_.control().session_state.store(
      static_cast<std::uint32_t>(ring::SessionState::Quarantined));
  work();
  EXPECT_TRUE(submission_.lost());
  for (const Operation* operation : open) {
    ASSERT_TRUE(operation->done.load());
    EXPECT_EQ(operation->outcome.error.reason, Reason::Quarantined);
  }
  EXPECT_TRUE(aborted_.empty()) << "nobody is left to be told";
  EXPECT_EQ(submission_.submit(operation(member)).error().reason, Reason::Quarantined);
}

TEST_F(SubmissionTest, ADaemonThatHangsUpEndsEverythingButWhatItHadAnswered) {
  const auto member = joined();
  Operation& answered = submitted(member);
  Operation& open = submitted(member);
  complete(left_requests()[0]);
  socket_.hang_up();
  submission_.check();
  EXPECT_TRUE(submission_.lost());
  ASSERT_TRUE(answered.done.load() && open.done.load());
  EXPECT_FALSE(answered.failed());
  EXPECT_EQ(open.outcome.error.reason, Reason::DaemonLost);
}

TEST_F(SubmissionTest, WhoeverSleepsIsWokenByTheCompletionAndReapsForTheOthers) {
  const auto member = joined();
  Operation& first = submitted(member);
  Operation& second = submitted(member);
  const auto requests = left_requests();
  std::jthread other(
      [&] { EXPECT_TRUE(waiting_.wait_for(second, Deadline::after(milliseconds(10'000)))); });
  std::jthread daemon([&] {
    std::this_thread::sleep_for(milliseconds(30));  // past the spinning and the yielding
    for (const ring::WorkRequest& request : requests) complete(request);
  });
  EXPECT_TRUE(waiting_.wait_for(first, Deadline::after(milliseconds(10'000))));
}

// How often this thread has slept so far; a yield is not counted.
long sleeps_of_this_thread() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

TEST_F(SubmissionTest, AWaitSleepsAtOnceWhileTheDaemonSharesItsCore) {
  const auto member = joined();
  Operation& operation = submitted(member);
  segment_.control().core_is_shared.store(1);
  // Half of the yielding is too short for a wait that would yield first, however often it is tried.
  // Of a wait that sleeps at once one try can find its time over before it began, where this thread
  // was put off its core.
  long slept = 0;
  for (const auto until = Deadline::after(milliseconds(10'000)); slept == 0 && !until.passed();) {
    const long before = sleeps_of_this_thread();
    EXPECT_FALSE(waiting_.wait_for(
        operation, Deadline(Deadline::Clock::now() + std::chrono::microseconds(150))));
    slept = sleeps_of_this_thread() - before;
  }
  EXPECT_GT(slept, 0);
  complete(left_requests()[0]);
  EXPECT_TRUE(waiting_.wait_for(operation, Deadline::after(milliseconds(10'000))));
}

TEST_F(SubmissionTest, AWaitThatSleepsAtOnceMissesNoCompletion) {
  const auto member = joined();
  segment_.control().core_is_shared.store(1);
  std::jthread daemon([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (const ring::WorkRequest& request : left_requests()) complete(request);
      std::this_thread::yield();
    }
  });
  const auto begin = Deadline::Clock::now();
  for (int i = 0; i < 500; ++i) {
    Operation& operation = submitted(member);
    ASSERT_TRUE(waiting_.wait_for(operation, Deadline::after(milliseconds(10'000)))) << i;
  }
  // Each that is missed costs a slice of 20 ms; so does a core that others keep, now and then.
  EXPECT_LT(Deadline::Clock::now() - begin, milliseconds(500 * 19));
}

TEST_F(SubmissionTest, AWaitEndsAtItsDeadlineAndWhatIsAbandonedEndsLater) {
  const auto member = joined();
  Operation& operation = submitted(member);
  EXPECT_FALSE(waiting_.wait_for(operation, Deadline::after(milliseconds(2))));
  tickets().spend(operation, operation.ticket.load());
  operations_.clear();  // its owner is the submission now
  submission_.abandon(operation);
  EXPECT_EQ(member->active.load(), 1u);
  EXPECT_EQ(submission_.failure_of(*member).reason, Reason::Revoked);
  complete(left_requests()[0]);
  work();
  EXPECT_EQ(member->active.load(), 0u);
}

}  // namespace
}  // namespace arcomm::client
