// What a request and a uid may ask for at most, through real calls.
#include <gtest/gtest.h>

#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

using grpc::StatusCode;

class RequestBounds : public ControlTest {};

TEST_F(RequestBounds, NamesTheQuotaThatIsUsedUp) {
  start();
  Session session = open_session();
  v1::BufferReply reply;
  Outcome outcome = allocate(session, 2 << 20, &reply);
  EXPECT_EQ(outcome.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(outcome.reason, Reason::Quota);
  EXPECT_NE(outcome.status.error_message().find("quota.registered_bytes"), std::string::npos);
  EXPECT_NE(outcome.status.error_message().find("1048576"), std::string::npos);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(allocate(session, 4096, &reply).status.ok());
  outcome = allocate(session, 4096, &reply);
  EXPECT_EQ(outcome.reason, Reason::Quota);
  EXPECT_NE(outcome.status.error_message().find("quota.buffers"), std::string::npos);

  v1::ReleaseBufferRequest release;
  *release.mutable_session() = session.ref;
  release.set_buffer(reply.buffer());
  v1::Empty empty;
  ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::ReleaseBuffer, release, &empty).status.ok());
  EXPECT_TRUE(allocate(session, 4096, &reply).status.ok())
      << "what was released may be taken again";
}

TEST_F(RequestBounds, BoundsSessionsPlansAndCommunicatorsPerUid) {
  start();
  std::vector<Session> sessions;
  sessions.reserve(4);
  for (int i = 0; i < 4; ++i) sessions.push_back(open_session());
  v1::AttachReply reply;
  Outcome outcome = attach(reply);
  EXPECT_EQ(outcome.reason, Reason::Quota);
  EXPECT_NE(outcome.status.error_message().find("quota.sessions"), std::string::npos);

  v1::CreatePlanRequest plan;
  *plan.mutable_session() = sessions[0].ref;
  v1::CreatePlanReply planned;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::CreatePlan, plan, &planned).status.ok());
  }
  outcome = call(*client_, &v1::NodeControl::Stub::CreatePlan, plan, &planned);
  EXPECT_NE(outcome.status.error_message().find("quota.plans"), std::string::npos);

  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(
        join(sessions[0], unique_id(static_cast<char>('a' + i)), 0, 1, nullptr).status.ok());
  }
  outcome = join(sessions[0], unique_id('z'), 0, 1, nullptr);
  EXPECT_NE(outcome.status.error_message().find("quota.communicators"), std::string::npos);

  EXPECT_TRUE(detach(sessions[0]).status.ok());
  EXPECT_TRUE(attach(reply).status.ok()) << "a session's end gives all of its quota back";
}

TEST_F(RequestBounds, RefusesAPlanOfAnUnknownOperationByName) {
  start();
  Session session = open_session();
  const auto refused = [&](auto spoil) {
    v1::CreatePlanRequest plan;
    *plan.mutable_session() = session.ref;
    plan.set_send_count(8);
    plan.set_recv_count(8);
    spoil(plan);
    v1::CreatePlanReply planned;
    const Outcome outcome = call(*client_, &v1::NodeControl::Stub::CreatePlan, plan, &planned);
    EXPECT_EQ(outcome.reason, Reason::BadValue);
    return outcome.status.error_message();
  };
  EXPECT_NE(refused([](auto& plan) {
              plan.set_collective(6);
            }).find("the collective is unknown: this version knows all_reduce: collective 6,"),
            std::string::npos);
  EXPECT_NE(refused([](auto& plan) { plan.set_codec(kCodecs); }).find("the codec is unknown"),
            std::string::npos);
  EXPECT_NE(refused([](auto& plan) {
              plan.set_recv_count(9);
            }).find("send count 8, recv count 9, root -1"),
            std::string::npos);
  EXPECT_NE(refused([](auto& plan) { plan.set_root_plus_one(1); }).find("has no root"),
            std::string::npos);
  EXPECT_NE(refused([](auto& plan) { plan.set_op(256); }).find("out of range"), std::string::npos);
}

TEST_F(RequestBounds, RefusesAnOversizedRequestAndServesTheNext) {
  start();
  v1::AttachRequest request;
  request.set_process_name(std::string(1 << 20, 'x'));
  v1::AttachReply reply;
  EXPECT_EQ(call(*client_, &v1::NodeControl::Stub::Attach, request, &reply).status.error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(attach(reply).status.ok());
}

// Parsed, a name of nothing takes 40 times the room of its two bytes, for as long as its call
// waits.
TEST_F(RequestBounds, RefusesARequestOfManyPartsBeforeAnythingWaits) {
  start();
  Session session = open_session();
  v1::CreateCommunicatorRequest request;
  *request.mutable_session() = session.ref;
  request.set_unique_id(unique_id('m'));
  request.set_ranks(2);
  request.set_timeout_ms(5000);
  for (int i = 0; i <= kMostGpusInRequest; ++i) request.add_visible_gpus("");
  v1::CreateCommunicatorReply reply;
  const auto began = std::chrono::steady_clock::now();
  const Outcome many = call(*client_, &v1::NodeControl::Stub::CreateCommunicator, request, &reply);
  EXPECT_EQ(many.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(many.status.error_message().find("number of visible_gpus has 65, and 64 is the most"),
            std::string::npos)
      << many.status.error_message();
  request.clear_visible_gpus();
  request.set_device(std::string(kMostNameBytes + 1, 'd'));
  EXPECT_EQ(call(*client_, &v1::NodeControl::Stub::CreateCommunicator, request, &reply)
                .status.error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  request.clear_device();
  request.set_unique_id(std::string(kMostRequestBytes, 'm'));
  EXPECT_EQ(call(*client_, &v1::NodeControl::Stub::CreateCommunicator, request, &reply)
                .status.error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3)) << "it waited";
  v1::ReleaseBufferRequest release;
  *release.mutable_session() = session.ref;
  for (std::size_t i = 0; i <= kMaxOffers; ++i) release.add_offered_fds(1);
  v1::Empty nothing;
  EXPECT_EQ(
      call(*client_, &v1::NodeControl::Stub::ReleaseBuffer, release, &nothing).status.error_code(),
      StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace arcomm::test
