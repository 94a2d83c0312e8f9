// What sessions are charged for buffers of GPU memory that their worker makes only after the calls
// have ended.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "daemon/control/calls/buffers/gpu_buffer_calls.h"
#include "tests/unit/daemon/control/calls/late_worker_fixture.h"

namespace arcomm::test {
namespace {

constexpr std::uint64_t kLateBytes = FakeWorker::kGranule;

class LateBuffer : public LateWorkerTest {
 protected:
  ErrorCode allocate() {
    return end_of<v1::BufferReply>([this](Answer<v1::BufferReply> answer) {
      v1::AllocateBufferRequest request;
      request.set_bytes(kLateBytes);
      calls_.allocate_buffer(*session_, request, 0, std::move(answer));
    });
  }
  ErrorCode enter() {
    return end_of<v1::BufferReply>([this](Answer<v1::BufferReply> answer) {
      v1::RegisterBufferRequest request;
      request.set_ipc_handle(std::string(64, 'h'));
      request.set_length_bytes(kLateBytes);
      request.set_allocation_bytes(kLateBytes);
      calls_.register_buffer(*session_, request, 0, std::move(answer));
    });
  }

  GpuBufferCalls calls_{*state_};
};

TEST_F(LateBuffer, ThatWasAllocatedIsChargedForUntilItIsRemoved) {
  ASSERT_EQ(allocate(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(charged(QuotaKind::Buffers), 1u);
  EXPECT_EQ(charged(QuotaKind::RegisteredBytes), kLateBytes);
  let_go();
  EXPECT_EQ(worker_->buffers(), 0u);
  EXPECT_EQ(charged(QuotaKind::Buffers), 0u);
  EXPECT_EQ(charged(QuotaKind::RegisteredBytes), 0u);
}

TEST_F(LateBuffer, ThatWasRegisteredIsChargedForUntilItIsRemoved) {
  ASSERT_EQ(enter(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(charged(QuotaKind::Mappings), 1u);
  let_go();
  EXPECT_EQ(worker_->buffers(), 0u);
  EXPECT_EQ(charged(QuotaKind::Mappings), 0u);
  EXPECT_EQ(charged(QuotaKind::Buffers), 0u);
}

TEST_F(LateBuffer, ThatTheWorkerRefusesLateCostsNothing) {
  worker_->refuse_buffers = true;
  ASSERT_EQ(enter(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(charged(QuotaKind::Buffers), 1u);
  let_go();
  EXPECT_EQ(charged(QuotaKind::Buffers), 0u);
}

}  // namespace
}  // namespace arcomm::test
