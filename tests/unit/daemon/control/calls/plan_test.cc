// What sessions are charged for plans, where their worker answers only after the calls have ended:
// as many as the worker lets them have.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "daemon/control/calls/plan_calls.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "tests/unit/daemon/control/fake_worker.h"

namespace arcomm::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{20};

class PlanCallsTest : public ::testing::Test {
 protected:
  PlanCallsTest() {
    SessionEntry entry;
    entry.peer.uid = caller_.peer.uid;
    entry.on_gpus = true;
    const SessionEntry& session = **state_->ledger.open(std::move(entry));
    session_.set_session(session.id.bits());
    session_.set_session_token(std::string(session.token.size(), '\0'));
    std::memcpy(session_.mutable_session_token()->data(), session.token.data(),
                session.token.size());
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~PlanCallsTest() override {
    loop_->stop();
    thread_.join();
    worker_.reset();
    loop_->clear();
  }

  // What the loop says of it.
  template <typename T>
  T on_loop(const std::function<T()>& ask) {
    std::promise<T> answered;
    loop_->post([&] { answered.set_value(ask()); });
    return answered.get_future().get();
  }
  // Of one whose answer the worker holds back: the call's end.
  ErrorCode create_too_late() {
    worker_->holding = true;
    v1::CreatePlanRequest request;
    *request.mutable_session() = session_;
    std::promise<ErrorCode> ended;
    loop_->post([&] {
      calls_.create_plan(caller_, request, [&](const Result<v1::CreatePlanReply>& reply) {
        ended.set_value(reply ? ErrorCode::Ok : reply.error().code);
      });
    });
    return ended.get_future().get();
  }
  // The worker's answer, and its answer to what the loop asks of it then.
  void let_go() {
    worker_->let_go();
    for (int answer = 0; answer < 2; ++answer) {
      std::promise<void> answered;
      worker_->inspect([&](const Result<WorkerSnapshot>&) { answered.set_value(); });
      answered.get_future().wait();
      charged();
    }
  }
  std::uint64_t charged() {
    return on_loop<std::uint64_t>(
        [this] { return state_->quotas.used(caller_.peer.uid, QuotaKind::DevicePlans); });
  }

  const Caller caller_{.peer = {.pid = 1, .uid = 1000, .gid = 1000}};
  Metrics metrics_;
  std::unique_ptr<EventLoop> loop_ = EventLoop::create().value();
  std::unique_ptr<FakeWorker> worker_ = std::make_unique<FakeWorker>();
  std::unique_ptr<ControlState> state_ = std::make_unique<ControlState>(
      *loop_, metrics_, std::make_shared<const Settings>(),
      std::vector<WorkerRef>{{.device = "gpu", .worker = worker_.get()}}, kLimit);
  PlanCalls calls_{*state_};
  v1::SessionRef session_;
  std::thread thread_;
};

TEST_F(PlanCallsTest, APlanThatIsMadeTooLateIsChargedForUntilItIsRemoved) {
  ASSERT_EQ(create_too_late(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(charged(), 1u);
  let_go();
  EXPECT_EQ(worker_->paid_plans, 0u);
  EXPECT_EQ(charged(), 0u);
}

// The session guesses its number and removes it in its ring: another one takes its place there, for
// which nobody had been charged.
TEST_F(PlanCallsTest, APlanThatIsMadeTooLateAndRemovedInTheRingLeavesAPlaceThatIsCharged) {
  ASSERT_EQ(create_too_late(), ErrorCode::DeadlineExceeded);
  worker_->remove_plans_in_ring();
  let_go();
  EXPECT_EQ(worker_->paid_plans, 1u);
  EXPECT_EQ(charged(), 1u);
}

}  // namespace
}  // namespace arcomm::test
