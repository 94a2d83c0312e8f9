// Threads of one rank whose operations wait for each other, as the calls of a communicator are in
// order whether they meet their peers' or go to the worker.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "client/src/host/in_call/in_call_path.h"
#include "proto/host/in_call.h"
#include "tests/unit/client/host/rings/submission_fixture.h"

namespace arcomm::client {
namespace {

class InCallTurn : public SubmissionTest {
 protected:
  std::shared_ptr<Member> joined_in_call() {
    auto member = joined();
    constexpr InCallLayout kLayout(2, 4096);
    member->in_call = InCallPath::open(create_in_call_memory(kLayout).value(), 0, kLayout).value();
    return member;
  }
  static Deadline late() { return Deadline::after(milliseconds(10'000)); }
};

TEST_F(InCallTurn, AnOperationIsSubmittedWhenTheCallBeforeItIsOver) {
  const auto member = joined_in_call();
  InCallPath::Turn call = member->in_call->turn(late());
  Operation& next = operation(member);
  std::jthread other([&] { EXPECT_TRUE(submission_.submit(next).ok()); });
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_TRUE(left_requests().empty());
  call.unlock();
  other.join();
  EXPECT_EQ(left_requests().size(), 1u);
}

TEST_F(InCallTurn, AnOperationWhoseTurnDoesNotComeByItsDeadlineEndsWithATimeoutThatSaysWhy) {
  const auto member = joined_in_call();
  const InCallPath::Turn call = member->in_call->turn(late());
  Operation& next = operation(member);
  next.deadline = Deadline::after(milliseconds(30));
  const Status refused = submission_.submit(next);
  EXPECT_TRUE(next.deadline.passed());
  EXPECT_FALSE(Deadline(next.deadline).plus(milliseconds(5000)).passed());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::DeadlineExceeded);
  EXPECT_EQ(refused.error().reason, Reason::Timeout);
  EXPECT_NE(refused.error().message.find("another thread"), std::string::npos)
      << refused.error().message;
  // The ranks no longer agree on what comes next, and the peers hear of it.
  EXPECT_TRUE(left_requests().empty());
  EXPECT_EQ(submission_.failure_of(*member).reason, Reason::Revoked);
  work();
  EXPECT_EQ(aborted_, std::vector<MemberId>{member->id});
}

TEST_F(InCallTurn, AMemberWaitsForNoOtherMembersCalls) {
  const auto first = joined_in_call(), second = joined_in_call();
  const InCallPath::Turn call = first->in_call->turn(late());
  submitted(second);
  EXPECT_EQ(left_requests().size(), 1u);
}

}  // namespace
}  // namespace arcomm::client
