// What sessions are charged for buffers of GPU memory that their worker makes only after the calls
// have ended.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "daemon/control/calls/gpu_buffer_calls.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "tests/unit/daemon/control/fake_worker.h"

namespace arcomm::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMayTake{20};
constexpr std::uint64_t kLateBytes = FakeWorker::kGranule;
constexpr uid_t kOwner = 1000;

class LateBuffer : public ::testing::Test {
 protected:
  LateBuffer() {
    worker_->gpus = true;
    SessionEntry entry;
    entry.peer.uid = kOwner;
    entry.on_gpus = true;
    session_ = *state_->ledger.open(std::move(entry));
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~LateBuffer() override {
    loop_->stop();
    thread_.join();
    worker_.reset();
    loop_->clear();
  }

  template <typename T>
  T on_loop(const std::function<T()>& ask) {
    std::promise<T> answered;
    loop_->post([&] { answered.set_value(ask()); });
    return answered.get_future().get();
  }
  // Of a worker that holds its answer back: the call's end.
  ErrorCode ends(const std::function<void(Answer<v1::BufferReply>)>& call) {
    worker_->holding = true;
    std::promise<ErrorCode> ended;
    loop_->post([&] {
      call([&](const Result<v1::BufferReply>& reply) {
        ended.set_value(reply ? ErrorCode::Ok : reply.error().code);
      });
    });
    return ended.get_future().get();
  }
  ErrorCode allocate() {
    return ends([this](Answer<v1::BufferReply> answer) {
      v1::AllocateBufferRequest request;
      request.set_bytes(kLateBytes);
      calls_.allocate_buffer(*session_, request, 0, std::move(answer));
    });
  }
  ErrorCode enter() {
    return ends([this](Answer<v1::BufferReply> answer) {
      v1::RegisterBufferRequest request;
      request.set_ipc_handle(std::string(64, 'h'));
      request.set_length_bytes(kLateBytes);
      request.set_allocation_bytes(kLateBytes);
      calls_.register_buffer(*session_, request, 0, std::move(answer));
    });
  }
  // The worker's answer, and its answer to what the loop asks of it then.
  void let_go() {
    worker_->let_go();
    for (int answer = 0; answer < 2; ++answer) {
      std::promise<void> answered;
      worker_->inspect([&](const Result<WorkerSnapshot>&) { answered.set_value(); });
      answered.get_future().wait();
      used(QuotaKind::Buffers);
    }
  }
  std::uint64_t used(QuotaKind kind) {
    return on_loop<std::uint64_t>([&] { return state_->quotas.used(kOwner, kind); });
  }

  Metrics metrics_;
  std::unique_ptr<EventLoop> loop_ = EventLoop::create().value();
  std::unique_ptr<FakeWorker> worker_ = std::make_unique<FakeWorker>();
  std::unique_ptr<ControlState> state_ = std::make_unique<ControlState>(
      *loop_, metrics_, std::make_shared<const Settings>(),
      std::vector<WorkerRef>{{.device = "gpu", .worker = worker_.get(), .gpus = {"GPU-0"}}},
      kMayTake);
  GpuBufferCalls calls_{*state_};
  SessionEntry* session_ = nullptr;
  std::thread thread_;
};

TEST_F(LateBuffer, ThatWasAllocatedIsChargedForUntilItIsRemoved) {
  ASSERT_EQ(allocate(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(used(QuotaKind::Buffers), 1u);
  EXPECT_EQ(used(QuotaKind::RegisteredBytes), kLateBytes);
  let_go();
  EXPECT_EQ(worker_->buffers(), 0u);
  EXPECT_EQ(used(QuotaKind::Buffers), 0u);
  EXPECT_EQ(used(QuotaKind::RegisteredBytes), 0u);
}

TEST_F(LateBuffer, ThatWasRegisteredIsChargedForUntilItIsRemoved) {
  ASSERT_EQ(enter(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(used(QuotaKind::Mappings), 1u);
  let_go();
  EXPECT_EQ(worker_->buffers(), 0u);
  EXPECT_EQ(used(QuotaKind::Mappings), 0u);
  EXPECT_EQ(used(QuotaKind::Buffers), 0u);
}

TEST_F(LateBuffer, ThatTheWorkerRefusesLateCostsNothing) {
  worker_->refuse_buffers = true;
  ASSERT_EQ(enter(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(used(QuotaKind::Buffers), 1u);
  let_go();
  EXPECT_EQ(used(QuotaKind::Buffers), 0u);
}

}  // namespace
}  // namespace arcomm::test
