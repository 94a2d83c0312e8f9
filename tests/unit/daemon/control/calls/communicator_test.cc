// CreateCommunicator over the wire: ranks that meet, ranks that do not, and epochs.
#include <cstring>
#include <future>

#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

using grpc::StatusCode;

UniqueIdBytes bytes_of(const std::string& id) {
  UniqueIdBytes bytes{};
  std::memcpy(bytes.data(), id.data(), bytes.size());
  return bytes;
}

class CommunicatorTest : public ControlTest {
 protected:
  struct Joining {
    std::future<Outcome> outcome;
    v1::CreateCommunicatorReply reply;
  };
  std::unique_ptr<Joining> join_later(const Session& session, const std::string& id, int rank,
                                      int ranks, std::uint64_t timeout_ms = 3000) {
    auto joining = std::make_unique<Joining>();
    joining->outcome = std::async(
        std::launch::async, [this, &session, id, rank, ranks, timeout_ms, to = joining.get()] {
          return join(session, id, rank, ranks, &to->reply, timeout_ms);
        });
    return joining;
  }
  bool waits_for_others(int callers) {
    return eventually([&] {
      v1::CommunicatorsReply reply;
      call(*admin_, &v1::NodeAdmin::Stub::ListCommunicators, v1::Empty(), &reply);
      int members = 0;
      for (const auto& one : reply.communicators()) members += one.members_size();
      return members == callers;
    });
  }
};

TEST_F(CommunicatorTest, FormsWhenTheLastRankCallsWithRanksInOrder) {
  start();
  const Session a = open_session();
  const Session b = open_session();
  auto second = join_later(b, unique_id('1'), 2, 3);
  auto first = join_later(a, unique_id('1'), 1, 3);
  ASSERT_TRUE(waits_for_others(2));
  v1::CreateCommunicatorReply reply;
  const Outcome outcome = join(a, unique_id('1'), 0, 3, &reply);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  ASSERT_TRUE(first->outcome.get().status.ok());
  ASSERT_TRUE(second->outcome.get().status.ok());
  EXPECT_EQ(reply.epoch(), 1u);
  EXPECT_EQ(reply.segment_limit_bytes(), settings_.op.segment_bytes);
  EXPECT_EQ(reply.rank_devices_size(), 3);
  EXPECT_EQ(metrics_.communicators.value(), 1);
  const auto formed = worker_->formed();
  ASSERT_EQ(formed.size(), 1u);
  for (Rank rank = 0; rank < 3; ++rank)
    EXPECT_EQ(formed[0].ranks[static_cast<std::size_t>(rank)].rank, rank);
  EXPECT_EQ(formed[0].ranks[2].session.bits(), b.ref.session());
  EXPECT_NE(reply.member(), first->reply.member());
}

TEST_F(CommunicatorTest, TellsWhoDidNotCallWhenTheTimeoutPasses) {
  start();
  const Session session = open_session();
  const auto before = std::chrono::steady_clock::now();
  const Outcome outcome = join(session, unique_id('2'), 0, 4, nullptr, 150);
  const auto took = std::chrono::steady_clock::now() - before;
  EXPECT_EQ(outcome.status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(outcome.reason, Reason::Timeout);
  EXPECT_NE(outcome.status.error_message().find("ranks 1, 2, 3 of 4 have not called"),
            std::string::npos)
      << outcome.status.error_message();
  EXPECT_GE(took, milliseconds(150));
  EXPECT_LT(took, milliseconds(1150));  // 100 ms on a machine that is not busy with other tests
}

TEST_F(CommunicatorTest, RefusesARankThatIsTakenWhileFormingAndWhenReady) {
  start();
  const Session session = open_session();
  auto first = join_later(session, unique_id('3'), 0, 2);
  ASSERT_TRUE(waits_for_others(1));
  EXPECT_EQ(join(session, unique_id('3'), 0, 2, nullptr).status.error_code(),
            StatusCode::ALREADY_EXISTS);
  ASSERT_TRUE(join(session, unique_id('3'), 1, 2, nullptr).status.ok());
  ASSERT_TRUE(first->outcome.get().status.ok());
  EXPECT_EQ(join(session, unique_id('3'), 1, 2, nullptr).status.error_code(),
            StatusCode::ALREADY_EXISTS);
}

TEST_F(CommunicatorTest, FailsAllRanksWhenTheyDisagreeAboutTheirNumber) {
  start();
  const Session session = open_session();
  auto first = join_later(session, unique_id('4'), 0, 2);
  ASSERT_TRUE(waits_for_others(1));
  const Outcome second = join(session, unique_id('4'), 1, 3, nullptr);
  for (const Outcome& outcome : {first->outcome.get(), second}) {
    EXPECT_EQ(outcome.status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(outcome.reason, Reason::Mismatch);
    EXPECT_NE(outcome.status.error_message().find("rank 0 says 2 and rank 1 says 3"),
              std::string::npos)
        << outcome.status.error_message();
  }
  // The id is free again.
  EXPECT_TRUE(join(session, unique_id('4'), 0, 1, nullptr).status.ok());
}

TEST_F(CommunicatorTest, RefusesRanksAndIdsThatCannotBe) {
  start();
  const Session session = open_session();
  EXPECT_EQ(join(session, unique_id('5'), 2, 2, nullptr).status.error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(join(session, unique_id('5'), -1, 2, nullptr).status.error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(join(session, unique_id('5'), 0, 65, nullptr).status.error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(join(session, unique_id('5'), 0, 0, nullptr).status.error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(join(session, "short", 0, 1, nullptr).status.error_code(),
            StatusCode::INVALID_ARGUMENT);
}

TEST_F(CommunicatorTest, RefusesMoreNamesOfGpusThanAMachineHasAndKeepsNone) {
  start();
  const Session session = open_session();
  v1::CreateCommunicatorRequest request;
  *request.mutable_session() = session.ref;
  request.set_unique_id(unique_id('v'));
  request.set_ranks(2);
  request.set_timeout_ms(1000);
  v1::CreateCommunicatorReply reply;
  const auto expect_refused = [&](std::string_view why) {
    const Outcome outcome =
        call(*client_, &v1::NodeControl::Stub::CreateCommunicator, request, &reply);
    EXPECT_EQ(outcome.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_NE(outcome.status.error_message().find(why), std::string::npos)
        << outcome.status.error_message();
  };
  for (int i = 0; i < 30'000; ++i) request.add_visible_gpus("");
  expect_refused("larger than max");  // before it is parsed
  request.clear_visible_gpus();
  for (int i = 0; i < 1'000; ++i) request.add_visible_gpus("");
  expect_refused("visible_gpus has 1000");
  request.clear_visible_gpus();
  request.add_visible_gpus(std::string(40'000, 'x'));
  expect_refused("larger than max");
  request.clear_visible_gpus();
  request.add_visible_gpus(std::string(3'000, 'x'));
  expect_refused("visible_gpus has 3000");
}

TEST_F(CommunicatorTest, FailsTheRanksThatWaitWhenOneOfThemDies) {
  start();
  const Session survivor = open_session();
  Session victim = open_session();
  auto first = join_later(survivor, unique_id('6'), 0, 3);
  auto second = join_later(victim, unique_id('6'), 1, 3);
  ASSERT_TRUE(waits_for_others(2));
  victim.fds->hang_up();
  const Outcome outcome = first->outcome.get();
  EXPECT_EQ(outcome.status.error_code(), StatusCode::ABORTED);
  EXPECT_EQ(outcome.reason, Reason::RemoteDied);
  EXPECT_NE(outcome.status.error_message().find("rank 1"), std::string::npos);
  second->outcome.get();
}

TEST_F(CommunicatorTest, RebuildsARevokedCommunicatorAsTheNextEpochAndForgetsTheOldSeats) {
  start();
  const Session session = open_session();
  v1::CreateCommunicatorReply first;
  ASSERT_TRUE(join(session, unique_id('7'), 0, 1, &first).status.ok());
  for (std::uint64_t epoch = 2; epoch < 30; ++epoch) {
    worker_->revoke(bytes_of(unique_id('7')), epoch - 1, Reason::RemoteDied);
    v1::CreateCommunicatorReply again;
    const Outcome outcome = join(session, unique_id('7'), 0, 1, &again);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(again.epoch(), epoch);
  }
  // More rebuilds than the quota of 8 allows communicators: the old seats were given back.
  EXPECT_TRUE(eventually([&] { return worker_->left().size() == 28; }));
  EXPECT_EQ(worker_->left()[0].bits(), first.member());
  EXPECT_EQ(metrics_.communicators.value(), 1);
  EXPECT_TRUE(detach(session).status.ok());
  EXPECT_EQ(metrics_.communicators.value(), 0);
}

// The completion ring is faster than the worker's event: a client may ask for a rebuild before
// control has heard.
TEST_F(CommunicatorTest, RebuildsThoughTheNewsOfTheRevocationIsStillUnderWay) {
  start();
  const Session session = open_session();
  ASSERT_TRUE(join(session, unique_id('8'), 0, 1, nullptr).status.ok());
  worker_->revoke_quietly(bytes_of(unique_id('8')), 1, Reason::RemoteDied);
  v1::CreateCommunicatorReply again;
  ASSERT_TRUE(join(session, unique_id('8'), 0, 1, &again).status.ok());
  EXPECT_EQ(again.epoch(), 2u);
}

TEST_F(CommunicatorTest, BuildsTheNextEpochAfterDestroyAndAfterAbort) {
  start();
  const Session session = open_session();
  v1::CreateCommunicatorReply reply;
  ASSERT_TRUE(join(session, unique_id('9'), 0, 1, &reply).status.ok());
  v1::DestroyCommunicatorRequest destroy;
  *destroy.mutable_session() = session.ref;
  destroy.set_member(reply.member());
  v1::Empty empty;
  ASSERT_TRUE(
      call(*client_, &v1::NodeControl::Stub::DestroyCommunicator, destroy, &empty).status.ok());
  EXPECT_EQ(call(*client_, &v1::NodeControl::Stub::DestroyCommunicator, destroy, &empty).reason,
            Reason::UnknownHandle);
  ASSERT_TRUE(join(session, unique_id('9'), 0, 1, &reply).status.ok());
  EXPECT_EQ(reply.epoch(), 2u);
  v1::AbortCommunicatorRequest abort;
  *abort.mutable_session() = session.ref;
  abort.set_member(reply.member());
  ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::AbortCommunicator, abort, &empty).status.ok());
  v1::DescribeRequest describe;
  *describe.mutable_session() = session.ref;
  describe.set_member(reply.member());
  v1::DescribeReply described;
  ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::Describe, describe, &described).status.ok());
  EXPECT_EQ(described.reason(), static_cast<std::uint32_t>(Reason::RemoteAborted));
  ASSERT_TRUE(join(session, unique_id('9'), 0, 1, &reply).status.ok());
  EXPECT_EQ(reply.epoch(), 3u);
}

TEST_F(CommunicatorTest, FreesTheRankOfACallerThatLostPatience) {
  start();
  const Session session = open_session();
  v1::CreateCommunicatorRequest request;
  *request.mutable_session() = session.ref;
  request.set_unique_id(unique_id('a'));
  request.set_ranks(2);
  request.set_timeout_ms(60'000);
  v1::CreateCommunicatorReply reply;
  EXPECT_EQ(
      call(*client_, &v1::NodeControl::Stub::CreateCommunicator, request, &reply, milliseconds(100))
          .status.error_code(),
      StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(waits_for_others(0));
  auto first = join_later(session, unique_id('a'), 0, 2);
  ASSERT_TRUE(join(session, unique_id('a'), 1, 2, nullptr).status.ok());
  EXPECT_TRUE(first->outcome.get().status.ok());
}

// A stranger who names another's session in a call of its own and gives up must not take the
// owner's call away.
TEST_F(CommunicatorTest, ACancelledCallThatNeverJoinedDisturbsNobody) {
  start();
  const Session session = open_session();
  auto first = join_later(session, unique_id('b'), 0, 2);
  ASSERT_TRUE(waits_for_others(1));
  v1::CreateCommunicatorRequest forged;
  forged.mutable_session()->set_session(session.ref.session());
  forged.set_unique_id(unique_id('b'));
  forged.set_ranks(2);
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call = client_->AsyncCreateCommunicator(&context, forged, &queue);
    v1::CreateCommunicatorReply reply;
    grpc::Status outcome;
    call->Finish(&reply, &outcome, &queue);
    context.TryCancel();
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_FALSE(outcome.ok());
  }
  EXPECT_TRUE(join(session, unique_id('b'), 1, 2, nullptr).status.ok());
  EXPECT_TRUE(first->outcome.get().status.ok());
}

}  // namespace
}  // namespace arcomm::test
