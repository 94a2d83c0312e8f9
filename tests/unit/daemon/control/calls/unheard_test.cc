// Answers that come when their caller has given up: nothing of them stays behind.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <future>
#include <vector>

#include "daemon/control/calls/numbered_answers.h"
#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

using grpc::StatusCode;

const std::string kGpu = "GPU-11111111-2222-3333-4444-555555555555";

class UnheardTest : public ControlTest {
 protected:
  // Calls, and gives up before the worker has answered. Only a call that reached the worker counts.
  template <typename Request, typename Reply>
  void call_and_give_up(grpc::Status (v1::NodeControl::Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Reply*),
                        const Request& request) {
    for (int tries = 0; tries < 100 && worker_->held() == 0; ++tries) {
      worker_->holding = true;
      Reply reply;
      ASSERT_EQ(call(*client_, method, request, &reply, milliseconds(40)).status.error_code(),
                StatusCode::DEADLINE_EXCEEDED);
    }
    ASSERT_EQ(worker_->held(), 1u);
    let_go_once_it_is_known(request.session());
  }
  // An answer that left before its caller gave up is kept, so the daemon must have heard of that:
  // what comes after it on the same connection has been answered.
  void let_go_once_it_is_known(const v1::SessionRef& session) {
    v1::DescribeRequest request;
    *request.mutable_session() = session;
    v1::DescribeReply reply;
    ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::Describe, request, &reply).status.ok());
    worker_->let_go();
  }
  v1::AllocateBufferRequest allocation(const Session& session) const {
    v1::AllocateBufferRequest request;
    *request.mutable_session() = session.ref;
    request.set_bytes(4096);
    return request;
  }
  bool nothing_is_held() {
    return metrics_.buffers.value() == 0 && metrics_.registered_bytes.value() == 0 &&
           metrics_.plans.value() == 0 && worker_->buffers() == 0 && worker_->plans() == 0;
  }
  std::uint64_t offer(Session& session) {
    const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(memory.get(), 4096), 0);
    EXPECT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    const auto offered = session.fds->ask(fd_request(FdMessageKind::Offer), {memory.get()});
    EXPECT_TRUE(offered && offered->code == 0);
    return offered ? offered->ticket : 0;
  }
  StatusCode take_back(const Session& session, std::uint64_t number) {
    v1::TakeBackRequest request;
    *request.mutable_session() = session.ref;
    request.mutable_session()->set_call(number);
    v1::Empty done;
    return call(*client_, &v1::NodeControl::Stub::TakeBack, request, &done).status.error_code();
  }
  // Allocations: as many answers as a session may leave unfetched, and one.
  void give_up_more_than_may_wait(Session& session) {
    for (std::size_t i = 0; i < kMaxTickets + 1; ++i) {
      call_and_give_up(&v1::NodeControl::Stub::AllocateBuffer, allocation(session));
      ASSERT_TRUE(eventually([&] { return nothing_is_held(); })) << "after " << i + 1;
    }
  }
};

TEST_F(UnheardTest, LateBuffersGiveBackTheirQuotaAndTheirTickets) {
  start();
  Session session = open_session();
  ASSERT_NO_FATAL_FAILURE(give_up_more_than_may_wait(session));
  // No ticket either: they are dealt out in order, and the next one serves.
  v1::BufferReply reply;
  ASSERT_TRUE(allocate(session, 4096, &reply).status.ok());
  for (std::uint64_t ticket = session.attached.fd_ticket() + 1; ticket < reply.fd_ticket();
       ++ticket) {
    const auto answer = session.fds->ask(fd_request(FdMessageKind::Fetch, ticket));
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->code, static_cast<std::uint32_t>(ErrorCode::NotFound)) << ticket;
  }
  std::vector<UniqueFd> fds;
  ASSERT_TRUE(session.fds->ask(fd_request(FdMessageKind::Fetch, reply.fd_ticket()), {}, &fds));
  EXPECT_EQ(fds.size(), 1u);
}

TEST_F(UnheardTest, LateBuffersOnAGpuGiveBackTheirQuotaAndTheirTickets) {
  settings_.quota.registered_bytes = 8 << 20;
  start({kGpu});
  Session session = open_session();
  ASSERT_NO_FATAL_FAILURE(give_up_more_than_may_wait(session));
  v1::BufferReply reply;
  ASSERT_TRUE(allocate(session, 4096, &reply).status.ok());
  EXPECT_EQ(worker_->buffers(), 1u);
}

TEST_F(UnheardTest, LateRegistrationsGiveBackTheirQuota) {
  start();
  Session session = open_session();
  v1::RegisterBufferRequest request;
  *request.mutable_session() = session.ref;
  request.set_length_bytes(4096);
  // An offer serves once, so each try has its own.
  for (int i = 0; i < 5; ++i) {
    request.set_offered_fd(offer(session));
    v1::BufferReply reply;
    worker_->holding = true;
    auto late = std::async(std::launch::async, [&] {
      return call(*client_, &v1::NodeControl::Stub::RegisterBuffer, request, &reply,
                  milliseconds(500));
    });
    ASSERT_TRUE(eventually([&] { return worker_->held() == 1; }));
    ASSERT_EQ(late.get().status.error_code(), StatusCode::DEADLINE_EXCEEDED);
    let_go_once_it_is_known(session.ref);
    ASSERT_TRUE(eventually([&] { return nothing_is_held(); }));
  }
}

TEST_F(UnheardTest, LatePlansAreRemoved) {
  start();
  Session session = open_session();
  v1::CreatePlanRequest request;
  *request.mutable_session() = session.ref;
  for (int i = 0; i < 5; ++i) {  // more than the quota of two
    call_and_give_up(&v1::NodeControl::Stub::CreatePlan, request);
    ASSERT_TRUE(eventually([&] { return nothing_is_held(); }));
  }
  v1::CreatePlanReply reply;
  EXPECT_TRUE(call(*client_, &v1::NodeControl::Stub::CreatePlan, request, &reply).status.ok());
  EXPECT_EQ(worker_->plans(), 1u);
}

TEST_F(UnheardTest, ASeatThatNobodyHeardOfIsLeft) {
  start();
  Session session = open_session();
  v1::CreateCommunicatorRequest request;
  *request.mutable_session() = session.ref;
  request.set_unique_id(unique_id('s'));
  request.set_ranks(1);
  request.set_timeout_ms(3000);
  call_and_give_up(&v1::NodeControl::Stub::CreateCommunicator, request);
  EXPECT_TRUE(eventually([&] { return worker_->left().size() == 1; }));
  v1::CreateCommunicatorReply reply;
  const Outcome again = join(session, unique_id('s'), 0, 1, &reply);
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(reply.epoch(), 2u);
  EXPECT_EQ(metrics_.communicators.value(), 1);
}

TEST_F(UnheardTest, ASeatOnAGpuThatNobodyHeardOfLeavesNoTicket) {
  start({kGpu});
  Session session = open_session();
  v1::CreateCommunicatorRequest request;
  *request.mutable_session() = session.ref;
  request.set_ranks(1);
  request.set_timeout_ms(3000);
  request.set_launch_table_version(kLaunchTableVersion);
  for (std::size_t i = 0; i < kMaxTickets + 1; ++i) {
    std::string id = unique_id('g');
    id[0] = static_cast<char>(i);
    request.set_unique_id(id);
    call_and_give_up(&v1::NodeControl::Stub::CreateCommunicator, request);
    ASSERT_TRUE(eventually([&] { return worker_->left().size() == i + 1; })) << i;
  }
  v1::CreateCommunicatorReply reply;
  const Outcome served = join(session, unique_id('h'), 0, 1, &reply);
  EXPECT_TRUE(served.status.ok()) << served.status.error_message();
}

// The answer had left when its client gave up, and gave what nobody can name.
TEST_F(UnheardTest, WhatACallGaveGoesWhenItsClientTakesItBackByItsNumber) {
  start();
  Session session = open_session();
  v1::RegisterBufferRequest buffer;
  *buffer.mutable_session() = session.ref;
  buffer.set_length_bytes(4096);
  v1::CreatePlanRequest plan;
  *plan.mutable_session() = session.ref;
  for (std::uint64_t i = 1; i <= 5; ++i) {  // more than the quotas
    buffer.set_offered_fd(offer(session));
    buffer.mutable_session()->set_call(2 * i);
    plan.mutable_session()->set_call(2 * i + 1);
    v1::BufferReply unheard;
    v1::CreatePlanReply unheard_plan;
    ASSERT_TRUE(
        call(*client_, &v1::NodeControl::Stub::RegisterBuffer, buffer, &unheard).status.ok());
    ASSERT_TRUE(
        call(*client_, &v1::NodeControl::Stub::CreatePlan, plan, &unheard_plan).status.ok());
    EXPECT_FALSE(nothing_is_held());
    EXPECT_EQ(take_back(session, 2 * i), StatusCode::OK);
    EXPECT_EQ(take_back(session, 2 * i + 1), StatusCode::OK);
    ASSERT_TRUE(eventually([&] { return nothing_is_held(); })) << i;
  }
}

TEST_F(UnheardTest, WhatIsTakenBackBeforeItIsThereIsNotKept) {
  start();
  Session session = open_session();
  v1::CreatePlanRequest request;
  *request.mutable_session() = session.ref;
  request.mutable_session()->set_call(7);
  worker_->holding = true;
  v1::CreatePlanReply reply;
  auto slow = std::async(std::launch::async, [&] {
    return call(*client_, &v1::NodeControl::Stub::CreatePlan, request, &reply).status;
  });
  ASSERT_TRUE(eventually([&] { return worker_->held() == 1; }));
  EXPECT_EQ(take_back(session, 7), StatusCode::OK);
  worker_->let_go();
  EXPECT_EQ(slow.get().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return nothing_is_held(); }));
}

TEST_F(UnheardTest, CallsThatAreTakenBackAndNeverComePushOutNoneThatGaveSomething) {
  start();
  Session session = open_session();
  v1::CreatePlanRequest request;
  *request.mutable_session() = session.ref;
  request.mutable_session()->set_call(7);
  v1::CreatePlanReply reply;
  ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::CreatePlan, request, &reply).status.ok());
  for (std::uint64_t never = 0; never < NumberedAnswers::kMostOfSession + 1; ++never)
    ASSERT_EQ(take_back(session, 1000 + never), StatusCode::OK);
  EXPECT_EQ(take_back(session, 7), StatusCode::OK);
  EXPECT_TRUE(eventually([&] { return nothing_is_held(); }));
}

TEST_F(UnheardTest, NobodyTakesBackAnothersCallsNorOnesWithoutANumber) {
  start();
  Session session = open_session(), other = open_session();
  v1::CreatePlanRequest request;
  *request.mutable_session() = session.ref;
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{7}}) {
    request.mutable_session()->set_call(number);
    v1::CreatePlanReply reply;
    ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::CreatePlan, request, &reply).status.ok());
  }
  EXPECT_EQ(take_back(session, 0), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(take_back(other, 7), StatusCode::OK);
  EXPECT_EQ(take_back(session, 8), StatusCode::OK);
  other.ref.set_session(session.ref.session());  // with its own token
  EXPECT_NE(take_back(other, 7), StatusCode::OK);
  EXPECT_EQ(worker_->plans(), 2u);
}

// The ticket is promised until it is stored, however long the worker takes.
TEST_F(UnheardTest, BuffersOnTheirWayInCountAsUnfetched) {
  constexpr std::size_t kCalls = kMaxTickets + 6;
  settings_.quota.buffers = kCalls;
  start();
  Session session = open_session();
  worker_->holding = true;
  std::vector<std::future<Outcome>> calls;
  std::vector<v1::BufferReply> replies(kCalls);
  for (v1::BufferReply& reply : replies) {
    calls.push_back(
        std::async(std::launch::async, [&] { return allocate(session, 4096, &reply); }));
  }
  const auto refused = [&] {
    return std::ranges::count_if(calls, [](auto& call) {
      return call.wait_for(milliseconds(0)) == std::future_status::ready;
    });
  };
  ASSERT_TRUE(
      eventually([&] { return worker_->held() + static_cast<std::size_t>(refused()) == kCalls; },
                 milliseconds(6000)));
  EXPECT_EQ(worker_->held(), kMaxTickets - 1) << "the rings' ticket is not fetched either";
  worker_->let_go();
  for (auto& call : calls) {
    const Outcome outcome = call.get();
    EXPECT_TRUE(outcome.status.ok() || outcome.reason == Reason::Quota)
        << outcome.status.error_message();
  }
}

TEST_F(UnheardTest, ACallerThatHangsUpLeavesNothingBehind) {
  start();
  Session session = open_session();
  const v1::AllocateBufferRequest request = allocation(session);
  for (int i = 0; i < 20; ++i) {
    worker_->holding = true;
    grpc::ClientContext context;
    v1::BufferReply reply;
    auto gone = std::async(std::launch::async,
                           [&] { return client_->AllocateBuffer(&context, request, &reply); });
    ASSERT_TRUE(eventually([&] { return worker_->held() == 1; }));
    context.TryCancel();
    ASSERT_EQ(gone.get().error_code(), StatusCode::CANCELLED);
    let_go_once_it_is_known(session.ref);
    ASSERT_TRUE(eventually([&] { return nothing_is_held(); })) << i;
  }
}

TEST_F(UnheardTest, AnAnswerThatComesInTimeIsKept) {
  start();
  Session session = open_session();
  worker_->holding = true;
  v1::BufferReply reply;
  auto slow =
      std::async(std::launch::async, [&] { return allocate(session, 4096, &reply).status; });
  ASSERT_TRUE(eventually([&] { return worker_->held() == 1; }));
  worker_->let_go();
  ASSERT_TRUE(slow.get().ok());
  std::vector<UniqueFd> fds;
  ASSERT_TRUE(session.fds->ask(fd_request(FdMessageKind::Fetch, reply.fd_ticket()), {}, &fds));
  EXPECT_EQ(fds.size(), 1u);
  EXPECT_EQ(worker_->buffers(), 1u);
  EXPECT_EQ(metrics_.buffers.value(), 1);
}

// What is released stays released, whether its caller waits for it or not.
TEST_F(UnheardTest, AReleaseWhoseCallerHasGivenUpHappensAllTheSame) {
  start();
  Session session = open_session();
  v1::BufferReply reply;
  ASSERT_TRUE(allocate(session, 4096, &reply).status.ok());
  v1::ReleaseBufferRequest release;
  *release.mutable_session() = session.ref;
  release.set_buffer(reply.buffer());
  call_and_give_up(&v1::NodeControl::Stub::ReleaseBuffer, release);
  EXPECT_TRUE(eventually([&] { return nothing_is_held(); }));
}

}  // namespace
}  // namespace arcomm::test
