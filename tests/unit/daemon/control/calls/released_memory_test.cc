// GPU memory that its session has released, or was refused, and that the worker cannot let go of
// yet: it is charged for until it has gone.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/control/calls/buffers/gpu_buffer_calls.h"
#include "daemon/control/calls/charge_with_room.h"
#include "daemon/control/limits/charges_at_workers.h"
#include "tests/support/sessions/lingering_socket.h"
#include "tests/unit/daemon/control/calls/late_worker_fixture.h"

namespace arcomm::test {
namespace {

constexpr std::uint64_t kBytes = FakeWorker::kGranule;

class ReleasedMemory : public LateWorkerTest {
 protected:
  ReleasedMemory() { worker_->keeps_released = true; }

  Result<BufferId> end_of_call(const std::function<void(Answer<v1::BufferReply>)>& call) {
    std::promise<Result<BufferId>> ended;
    loop_->post([&] {
      call([&](const Result<v1::BufferReply>& reply) {
        ended.set_value(reply ? Result<BufferId>(BufferId::from_bits(reply->buffer()))
                              : Result<BufferId>(reply.error()));
      });
    });
    return ended.get_future().get();
  }
  Result<BufferId> enter() {
    return end_of_call([this](Answer<v1::BufferReply> answer) {
      v1::RegisterBufferRequest request;
      request.set_ipc_handle(std::string(64, 'h'));
      request.set_length_bytes(kBytes);
      request.set_allocation_bytes(kBytes);
      calls_.register_buffer(*session_, request, 0, std::move(answer));
    });
  }
  Result<BufferId> allocate(std::uint64_t bytes = kBytes) {
    return end_of_call([this, bytes](Answer<v1::BufferReply> answer) {
      v1::AllocateBufferRequest request;
      request.set_bytes(bytes);
      calls_.allocate_buffer(*session_, request, 0, std::move(answer));
    });
  }
  // As BufferCalls does.
  void release(BufferId buffer) {
    std::promise<void> released;
    worker_->remove_buffer(session_->id, buffer, [&](const Status&) { released.set_value(); });
    released.get_future().wait();
    on_loop<std::size_t>([&] { return session_->buffers.erase(buffer); });
  }
  void let_go_of_released() {
    std::promise<void> gone;
    worker_->let_go_of_released(caller_.peer.uid, 0, [&](const Status&) { gone.set_value(); });
    gone.get_future().wait();
  }
  // What another user, who has one of it, is told who asks for one more.
  Error refusal_of_a_second(QuotaKind kind) {
    constexpr uid_t kOther = 1001;
    std::promise<Error> told;
    std::vector<ChargePtr> charges;
    const auto charge = [&]() -> Status {
      Result<ChargePtr> one = state_->quotas.charge(kOther, kind);
      if (!one) return std::move(one).error();
      charges.push_back(std::move(one).value());
      return {};
    };
    loop_->post([&] {
      EXPECT_TRUE(charge());
      charge_with_room(
          *state_, {.uid = kOther, .demands = {{state_->quotas.shares(kind)}}, .charge = charge},
          [&](const Status& charged) {
            charges.clear();
            told.set_value(charged ? error(ErrorCode::Ok, Reason::None, "charged")
                                   : charged.error());
          });
    });
    return told.get_future().get();
  }
  void may_have(std::uint64_t buffers, std::uint64_t bytes, std::uint64_t node_mappings = 0) {
    on_loop<bool>([&] {
      auto settings = std::make_shared<Settings>();
      settings->quota.node_mappings = node_mappings;
      settings->quota.buffers = buffers;
      settings->quota.registered_bytes = bytes;
      state_->use_settings(std::move(settings));
      return true;
    });
  }

  GpuBufferCalls calls_{*state_};
};

TEST_F(ReleasedMemory, OfARefusedRegistrationIsChargedForUntilItHasGone) {
  worker_->refuse_buffers = true;
  ASSERT_EQ(enter().error().reason, Reason::OutOfMemory);
  EXPECT_EQ(charged(QuotaKind::Buffers), 1u);
  EXPECT_EQ(charged(QuotaKind::Mappings), 1u);
  EXPECT_EQ(charged(QuotaKind::RegisteredBytes), kBytes);
  let_go_of_released();
  EXPECT_EQ(charged(QuotaKind::Buffers), 0u);
  EXPECT_EQ(charged(QuotaKind::Mappings), 0u);
  EXPECT_EQ(charged(QuotaKind::RegisteredBytes), 0u);
}

TEST_F(ReleasedMemory, ThatIsNotKeptIsFreeBeforeTheRefusalIsHeard) {
  worker_->keeps_released = false;
  worker_->refuse_buffers = true;
  ASSERT_EQ(enter().error().reason, Reason::OutOfMemory);
  EXPECT_EQ(charged(QuotaKind::Buffers), 0u);
}

TEST_F(ReleasedMemory, IsChargedForUntilItHasGoneWithTheShareOfItsGpu) {
  const auto of_gpu = [this] {
    return on_loop<std::uint64_t>([this] {
      const GpuShares::OfGpu& shares = state_->gpu_shares.shares().at("GPU-0");
      return shares[static_cast<std::size_t>(GpuResource::Bytes)].of_uid(caller_.peer.uid);
    });
  };
  const Result<BufferId> made = allocate(kBytes / 2 + 1);  // a whole granule
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  release(*made);
  EXPECT_EQ(charged(QuotaKind::RegisteredBytes), kBytes);
  EXPECT_EQ(of_gpu(), kBytes);
  let_go_of_released();
  EXPECT_EQ(charged(QuotaKind::RegisteredBytes), 0u);
  EXPECT_EQ(of_gpu(), 0u);
}

TEST_F(ReleasedMemory, OfASessionThatHasEndedIsChargedForUntilItHasGone) {
  ASSERT_TRUE(allocate().ok());
  const SessionId ended = session_->id;
  std::promise<void> closed;
  worker_->close_session(ended, Reason::None, "detached",
                         [&](const Status&) { closed.set_value(); });
  closed.get_future().wait();
  on_loop<bool>([&] { return state_->ledger.close(ended, Reason::None, "") != nullptr; });
  EXPECT_EQ(charged(QuotaKind::Buffers), 1u);
  let_go_of_released();
  EXPECT_EQ(charged(QuotaKind::Buffers), 0u);
}

// A client that names what is not as it says, again and again, beside a GPU that somebody fills.
TEST_F(ReleasedMemory, CannotPileUpBeyondTheQuotaOfItsUser) {
  may_have(4, 1 << 30);
  worker_->refuse_buffers = true;
  worker_->is_held_up = true;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(enter().error().reason, Reason::OutOfMemory) << i;
  const Error refused = enter().error();
  EXPECT_EQ(refused.code, ErrorCode::ResourceExhausted);
  EXPECT_EQ(refused.reason, Reason::Quota);
  EXPECT_NE(refused.message.find("quota.buffers"), std::string::npos) << refused.message;
  EXPECT_NE(refused.message.find("released"), std::string::npos) << refused.message;
  EXPECT_NE(refused.message.find("a GPU is full"), std::string::npos) << refused.message;
  worker_->is_held_up = worker_->refuse_buffers = false;
  EXPECT_TRUE(enter().ok()) << "it has gone";
}

// Most of the time the next quiescing is all that it waits for.
TEST_F(ReleasedMemory, IsLetGoOfWhenItsUserHasNoOtherRoom) {
  may_have(64, kBytes);
  for (int i = 0; i < 3; ++i) {
    const Result<BufferId> made = allocate();
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    release(*made);
    const Result<BufferId> entered = enter();
    ASSERT_TRUE(entered.ok()) << entered.error().to_string();
    release(*entered);
  }
}

TEST_F(ReleasedMemory, IsLetGoOfForWhatItsDeviceRoundedUpTo) {
  may_have(64, 2 * kBytes - 1);
  const Result<BufferId> made = allocate(kBytes - 2);
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  release(*made);
  const Result<BufferId> next = allocate(kBytes - 1);  // that fits, and the rest of its granule not
  EXPECT_TRUE(next.ok()) << next.error().to_string();
  EXPECT_EQ(charged(QuotaKind::RegisteredBytes), kBytes);
}

TEST_F(ReleasedMemory, CountsAsARefusalOnlyWhereSomebodyHearsOfIt) {
  may_have(64, kBytes);
  const Result<BufferId> made = allocate();
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  release(*made);
  ASSERT_TRUE(enter().ok());
  EXPECT_EQ(worker_->asked_to_let_go, 1);
  EXPECT_EQ(metrics_.rejected[Reason::Quota].value(), 0u);
  EXPECT_EQ(enter().error().reason, Reason::Quota);
  EXPECT_EQ(metrics_.rejected[Reason::Quota].value(), 1u);
}

TEST_F(ReleasedMemory, IsNoRoomForWhoAsksForMoreThanTheLimit) {
  may_have(64, kBytes);
  EXPECT_EQ(allocate(2 * kBytes).error().reason, Reason::Quota);
  EXPECT_EQ(worker_->asked_to_let_go, 0) << "the GPUs would stop for nothing";
}

// Nor is a GPU stopped for somebody of the host alone whose own limit it is.
TEST_F(ReleasedMemory, IsNotWaitedForAtALimitOfAUserWhoHasNoneOfIt) {
  may_have(1, 1 << 30);
  const Result<BufferId> made = allocate();
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  release(*made);
  const Error refused = refusal_of_a_second(QuotaKind::Buffers);
  EXPECT_EQ(refused.reason, Reason::Quota);
  EXPECT_EQ(refused.message.find("released"), std::string::npos) << refused.message;
  EXPECT_EQ(worker_->asked_to_let_go, 0);
}

TEST_F(ReleasedMemory, IsWaitedForWhereTheNodeIsShortByAUserWhoHasNoneOfIt) {
  may_have(64, 1 << 30, 4);
  for (int i = 0; i < 2; ++i) {
    const Result<BufferId> made = allocate();
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    release(*made);
  }
  EXPECT_EQ(refusal_of_a_second(QuotaKind::Mappings).message, "charged");
  EXPECT_EQ(worker_->asked_to_let_go, 1);
}

TEST_F(ReleasedMemory, ThatIsWaitedForMakesNoRoomInADaemonThatStops) {
  may_have(64, kBytes);
  const Result<BufferId> made = allocate();
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  release(*made);
  const Result<BufferId> refused = end_of_call([this](Answer<v1::BufferReply> answer) {
    v1::AllocateBufferRequest request;
    request.set_bytes(kBytes);
    calls_.allocate_buffer(*session_, request, 0, std::move(answer));
    state_->stopping = true;
  });
  EXPECT_EQ(refused.error().reason, Reason::ShuttingDown);
}

// The last close of a large piece takes as long as touching it did, and holds up everybody where
// the loop does it. A socket stands for gigabytes.
TEST_F(ReleasedMemory, PiecesOfARegistrationForWhichThereIsNoRoomAreClosedElsewhere) {
  may_have(1, 1 << 30);
  ASSERT_TRUE(enter().ok());
  support::LingeringSocket stuck;
  const auto offer = on_loop<std::uint64_t>(
      [&] { return state_->ledger.add_offer(*session_, std::move(stuck.end)).value(); });
  std::promise<Error> refused;
  loop_->post([&] {
    v1::RegisterBufferRequest request;
    request.set_length_bytes(kBytes);
    request.set_allocation_bytes(kBytes);
    v1::MemoryChunk& piece = *request.add_chunks();
    piece.set_offered_fd(offer);
    piece.set_bytes(kBytes);
    calls_.register_buffer(*session_, request, 0, [&](const Result<v1::BufferReply>& reply) {
      refused.set_value(reply.error());
    });
  });
  EXPECT_EQ(refused.get_future().get().reason, Reason::Quota);
  auto is_free = std::make_shared<std::promise<void>>();
  loop_->post([is_free] { is_free->set_value(); });
  EXPECT_EQ(is_free->get_future().wait_for(std::chrono::seconds(3)), std::future_status::ready);
  stuck.deaf.release();  // stays stuck
}

TEST(ChargesAtWorkersTest, TokensMayOutliveEverythingElse) {
  const auto charge = std::make_shared<int>(1);
  MemoryToken token;
  {
    const std::unique_ptr<EventLoop> loop = EventLoop::create().value();
    ChargesAtWorkers charges(*loop);
    token = charges.token_of(1000, charge);
    EXPECT_EQ(charge.use_count(), 2);
  }
  EXPECT_EQ(charge.use_count(), 1);
  token.reset();
}

}  // namespace
}  // namespace arcomm::test
