// What sessions are charged for plans, where their worker answers only after the calls have ended:
// as many as the worker lets them have.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "daemon/control/calls/plan_calls.h"
#include "tests/unit/daemon/control/calls/late_worker_fixture.h"

namespace arcomm::test {
namespace {

class PlanCallsTest : public LateWorkerTest {
 protected:
  ErrorCode create_too_late() {
    v1::CreatePlanRequest request;
    request.mutable_session()->set_session(session_->id.bits());
    request.mutable_session()->set_session_token(
        std::string(reinterpret_cast<const char*>(session_->token.data()), session_->token.size()));
    return end_of<v1::CreatePlanReply>([&](Answer<v1::CreatePlanReply> answer) {
      calls_.create_plan(caller_, request, std::move(answer));
    });
  }

  PlanCalls calls_{*state_};
};

TEST_F(PlanCallsTest, APlanThatIsMadeTooLateIsChargedForUntilItIsRemoved) {
  ASSERT_EQ(create_too_late(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(charged(QuotaKind::DevicePlans), 1u);
  let_go();
  EXPECT_EQ(worker_->paid_plans, 0u);
  EXPECT_EQ(charged(QuotaKind::DevicePlans), 0u);
}

// The session guesses its number and removes it in its ring: another one takes its place there, for
// which nobody had been charged.
TEST_F(PlanCallsTest, APlanThatIsMadeTooLateAndRemovedInTheRingLeavesAPlaceThatIsCharged) {
  ASSERT_EQ(create_too_late(), ErrorCode::DeadlineExceeded);
  worker_->remove_plans_in_ring();
  let_go();
  EXPECT_EQ(worker_->paid_plans, 1u);
  EXPECT_EQ(charged(QuotaKind::DevicePlans), 1u);
}

}  // namespace
}  // namespace arcomm::test
