// The control plane without gRPC: its loop, its state and its neighbours' threads. ThreadSanitizer
// can see all of this, which it cannot of the calls that pass through Debian's gRPC.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <future>

#include "daemon/control/access/connection_gate.h"
#include "daemon/control/node_control.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/version.h"
#include "tests/unit/daemon/control/fake_worker.h"

namespace arcomm::test {
namespace {

class LoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = EventLoop::create().value();
    auto settings = std::make_shared<Settings>();
    settings->quota.sessions = 100;
    // The worker's events come back by the loop, as ControlPlane wires them.
    worker_ = std::make_unique<FakeWorker>(WorkerEvents{
        .session_lost =
            [this](SessionId session, Reason reason, const std::string& why) {
              loop_->post([=, this] { control_->session_lost(session, reason, why); });
            },
        .communicator_revoked =
            [this](const UniqueIdBytes& id, std::uint64_t epoch, Reason, const std::string& why) {
              loop_->post([=, this] { control_->communicator_revoked(id, epoch, why); });
            }});
    control_ = std::make_unique<NodeControl>(NodeControl::Parts{.loop = *loop_,
                                                                .metrics = metrics_,
                                                                .memory_thread = memory_thread_,
                                                                .settings = settings,
                                                                .kept_rings = kept_rings_,
                                                                .workers = workers()});
    thread_ = std::thread([this] { loop_->run(); });
  }
  void TearDown() override {
    memory_thread_.stop();
    loop_->stop();
    thread_.join();
    worker_.reset();
    loop_->clear();
    control_.reset();
  }

  virtual std::vector<WorkerRef> workers() {
    return {{.device = "host:0", .worker = worker_.get(), .recorder = nullptr}};
  }

  template <typename Reply>
  using Later = std::future<std::shared_ptr<Result<Reply>>>;

  // A call as the RPC server makes it.
  template <typename Request, typename Reply>
  Later<Reply> begin(void (NodeControl::*method)(const Caller&, const Request&, Answer<Reply>),
                     const Request& request, std::uint64_t number = 0) {
    auto answered = std::make_shared<std::promise<std::shared_ptr<Result<Reply>>>>();
    auto future = answered->get_future();
    loop_->post([this, method, request, number, answered, connection = connection_] {
      const Caller caller{.connection = connection,
                          .kind = SocketKind::Client,
                          .peer = {::getpid(), ::getuid(), ::getgid()},
                          .call = number};
      (control_.get()->*method)(caller, request, [answered](Result<Reply> result) {
        answered->set_value(std::make_shared<Result<Reply>>(std::move(result)));
      });
    });
    return future;
  }
  template <typename Reply>
  static Result<Reply> wait(Later<Reply> future) {
    if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "no answer");
    }
    return *future.get();
  }
  // The same, waited for.
  template <typename Request, typename Reply>
  Result<Reply> call(void (NodeControl::*method)(const Caller&, const Request&, Answer<Reply>),
                     const Request& request) {
    return wait(begin(method, request));
  }
  static v1::AttachRequest attach_request(const std::string& device) {
    v1::AttachRequest request;
    request.set_ring_abi_major(kRingAbiMajor);
    request.set_device(device);
    return request;
  }
  v1::SessionRef attach(const std::string& device = "") {
    const Result<v1::AttachReply> reply = call(&NodeControl::attach, attach_request(device));
    v1::SessionRef session;
    EXPECT_TRUE(reply);
    if (!reply) return session;
    session.set_session(reply->session());
    session.set_session_token(reply->session_token());
    return session;
  }

  static v1::AllocateBufferRequest allocation(const v1::SessionRef& session, std::uint64_t bytes) {
    v1::AllocateBufferRequest request;
    *request.mutable_session() = session;
    request.set_bytes(bytes);
    return request;
  }

  ConnectionNumber connection_ = 1;  // of the calls from now on
  Metrics metrics_;
  ServiceManager no_systemd_;
  KeptRings kept_rings_{no_systemd_, metrics_};
  TaskThread memory_thread_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<FakeWorker> worker_;
  std::unique_ptr<NodeControl> control_;
  std::thread thread_;
};

TEST_F(LoopTest, ServesManyThreadsThatAttachJoinAllocateAndLeave) {
  constexpr int kThreads = 6;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::atomic<int> failures{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round) {
        const v1::SessionRef session = attach();
        v1::AllocateBufferRequest allocation;
        *allocation.mutable_session() = session;
        allocation.set_bytes(4096);
        if (!call(&NodeControl::allocate_buffer, allocation)) ++failures;
        v1::CreateCommunicatorRequest join;
        *join.mutable_session() = session;
        // Pairs of threads meet under one id.
        join.set_unique_id(std::string(128, static_cast<char>('a' + t / 2)));
        join.mutable_unique_id()->replace(1, sizeof(round), reinterpret_cast<const char*>(&round),
                                          sizeof(round));
        join.set_rank(t % 2);
        join.set_ranks(2);
        const auto joined = call(&NodeControl::create_communicator, join);
        if (!joined) ++failures;
        if (round % 3 == 0) {
          worker_->lose(SessionId::from_bits(session.session()), Reason::Quarantined, "test");
          continue;
        }
        v1::DetachRequest detach;
        *detach.mutable_session() = session;
        if (!call(&NodeControl::detach, detach)) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A partner that left first may fail the other's join, never more than that.
  EXPECT_EQ(failures.load(), 0);
  for (int i = 0; i < 1000 && metrics_.sessions.value() != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(metrics_.sessions.value(), 0);
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
  EXPECT_EQ(metrics_.communicators.value(), 0);
  EXPECT_EQ(worker_->open_sessions(), 0u);
}

TEST_F(LoopTest, MemoryForOneSessionDoesNotWaitForAnothersGigabytes) {
  const v1::SessionRef greedy = attach(), modest = attach();
  std::promise<void> gate;
  memory_thread_.post([&gate] { gate.get_future().wait(); });
  auto large = begin(&NodeControl::allocate_buffer, allocation(greedy, 1ull << 30));
  auto small = begin(&NodeControl::allocate_buffer, allocation(modest, 4096));
  gate.set_value();
  EXPECT_TRUE(wait(std::move(small)));
  EXPECT_EQ(large.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  v1::DetachRequest detach;
  *detach.mutable_session() = greedy;
  EXPECT_TRUE(call(&NodeControl::detach, detach));
  // Not begun to the end for a session that is gone.
  const Result<v1::BufferReply> dropped = wait(std::move(large));
  ASSERT_FALSE(dropped);
  EXPECT_EQ(dropped.error().reason, Reason::RemoteDied);
}

TEST_F(LoopTest, MemoryWhoseCallerIsGoneIsNotMadeAndCostsNothing) {
  const v1::SessionRef session = attach();
  std::promise<void> gate;
  memory_thread_.post([&gate] { gate.get_future().wait(); });
  constexpr std::uint64_t kRoom = kMaxTickets - 1;  // beside that of the rings
  std::vector<Later<v1::BufferReply>> calls;
  for (std::uint64_t number = 1; number <= kRoom; ++number) {
    calls.push_back(begin(&NodeControl::allocate_buffer, allocation(session, 16ull << 20), number));
  }
  const auto one_more = call(&NodeControl::allocate_buffer, allocation(session, 4096));
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().reason, Reason::Quota);
  loop_->post([this] {
    for (std::uint64_t number = 1; number <= kRoom; ++number) control_->cancel_allocation(number);
  });
  gate.set_value();
  for (auto& one : calls) {
    const Result<v1::BufferReply> dropped = wait(std::move(one));
    ASSERT_FALSE(dropped);
    EXPECT_EQ(dropped.error().code, ErrorCode::Cancelled) << dropped.error().to_string();
  }
  EXPECT_EQ(metrics_.buffers.value(), 0);
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
  EXPECT_EQ(worker_->buffers(), 0u);
  EXPECT_TRUE(call(&NodeControl::allocate_buffer, allocation(session, 4096)));
}

// Beside a worker of GPUs that keeps what was released until somebody lacks room.
class WaitsForRoom : public LoopTest {
 protected:
  std::vector<WorkerRef> workers() override {
    gpu_worker_.gpus = gpu_worker_.keeps_released = true;
    std::vector<WorkerRef> all = LoopTest::workers();
    all.push_back(
        {.device = "gpu", .worker = &gpu_worker_, .recorder = nullptr, .gpus = {"GPU-0"}});
    return all;
  }
  void release_gpu_memory() {
    v1::AllocateBufferRequest request = allocation(attach("GPU-0"), FakeWorker::kGranule);
    const Result<v1::BufferReply> made = call(&NodeControl::allocate_buffer, request);
    ASSERT_TRUE(made) << made.error().to_string();
    v1::ReleaseBufferRequest release;
    *release.mutable_session() = request.session();
    release.set_buffer(made->buffer());
    ASSERT_TRUE(call(&NodeControl::release_buffer, release));
    gpu_worker_.holding = true;
  }
  void use(const Settings::Quota& quota) {
    auto settings = std::make_shared<Settings>();
    settings->quota = quota;
    on_loop([&] { control_->use_settings(settings); });
  }
  bool one_waits() {
    for (int i = 0; i < 1000 && gpu_worker_.held() == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return gpu_worker_.held() == 1;
  }
  void on_loop(const std::function<void()>& task) {
    std::promise<void> done;
    loop_->post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  FakeWorker gpu_worker_;
};

// Of four mappings one user has two at most: the session's and the buffer's of the GPU.
TEST_F(WaitsForRoom, AnAttachWhoseConnectionEndsMeanwhileOpensNothingAndKeepsNothing) {
  release_gpu_memory();
  use({.node_mappings = 4});
  connection_ = 7;
  auto gone = begin(&NodeControl::attach, attach_request("host:0"));
  ASSERT_TRUE(one_waits());
  on_loop([this] { control_->connection_hung_up(7); });
  gpu_worker_.let_go();
  const Result<v1::AttachReply> unheard = wait(std::move(gone));
  ASSERT_FALSE(unheard);
  EXPECT_EQ(unheard.error().code, ErrorCode::Cancelled) << unheard.error().to_string();
  connection_ = 8;
  const Result<v1::AttachReply> attached = call(&NodeControl::attach, attach_request("host:0"));
  EXPECT_TRUE(attached) << "there is room for one: " << attached.error().to_string();
  EXPECT_EQ(worker_->open_sessions(), 1u);
  EXPECT_EQ(metrics_.sessions.value(), 2);
}

TEST_F(WaitsForRoom, AnAllocationWhoseCallerLeavesMeanwhileIsNotMadeAndCostsNothing) {
  release_gpu_memory();
  const v1::SessionRef session = attach("host:0");
  use({.buffers = 1});
  auto gone = begin(&NodeControl::allocate_buffer, allocation(session, 4096), 1);
  ASSERT_TRUE(one_waits());
  on_loop([this] { control_->cancel_allocation(1); });
  gpu_worker_.let_go();
  const Result<v1::BufferReply> unheard = wait(std::move(gone));
  ASSERT_FALSE(unheard);
  EXPECT_EQ(unheard.error().code, ErrorCode::Cancelled) << unheard.error().to_string();
  const auto made = call(&NodeControl::allocate_buffer, allocation(session, 4096));
  EXPECT_TRUE(made) << "there is room for one: " << made.error().to_string();
  EXPECT_EQ(worker_->buffers(), 1u);
}

TEST_F(LoopTest, HearsALateAnswerAfterTheDeadlineHasBeenToldOnce) {
  std::promise<ErrorCode> told;
  std::promise<int> late;
  std::promise<std::function<void(Result<int>)>> made;
  WorkerReplies replies(*loop_, std::chrono::milliseconds(10));
  loop_->post([&] {
    made.set_value(replies.on_loop<int>(
        "answer", [&](const Result<int>& result) { told.set_value(result.error().code); },
        [&](const Result<int>& result) { late.set_value(result.value()); }));
  });
  const auto done = made.get_future().get();
  EXPECT_EQ(told.get_future().get(), ErrorCode::DeadlineExceeded);
  done(42);
  EXPECT_EQ(late.get_future().get(), 42);
}

TEST_F(LoopTest, RunsTimersInOrderAndForgetsCancelledOnes) {
  std::promise<std::string> ran;
  std::string order;
  loop_->post([&] {
    loop_->after(std::chrono::milliseconds(20), [&] { order += 'b'; });
    loop_->after(std::chrono::milliseconds(5), [&] { order += 'a'; });
    const auto never = loop_->after(std::chrono::milliseconds(10), [&] { order += 'x'; });
    loop_->cancel(never);
    loop_->after(std::chrono::milliseconds(30), [&] { ran.set_value(order); });
  });
  EXPECT_EQ(ran.get_future().get(), "ab");
}

TEST_F(LoopTest, EndsAWatchThatRemovesItself) {
  int pair[2];
  ASSERT_EQ(::pipe(pair), 0);
  std::promise<void> seen;
  std::atomic<int> calls{0};
  loop_->post([&] {
    EXPECT_TRUE(loop_->watch(pair[0], 1 /* EPOLLIN */, [&](std::uint32_t) {
      loop_->unwatch(pair[0]);
      if (++calls == 1) seen.set_value();
    }));
  });
  ASSERT_EQ(::write(pair[1], "x", 1), 1);
  seen.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(calls.load(), 1);
  ::close(pair[0]);
  ::close(pair[1]);
}

}  // namespace
}  // namespace arcomm::test
