// A session on a GPU whose worker answers only after the calls of its loop have ended.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/control_state.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "tests/unit/daemon/control/fake_worker.h"

namespace arcomm::test {

class LateWorkerTest : public ::testing::Test {
 protected:
  LateWorkerTest() {
    worker_->gpus = true;
    SessionEntry entry;
    entry.peer.uid = caller_.peer.uid;
    entry.on_gpus = true;
    session_ = *state_->ledger.open(std::move(entry));
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~LateWorkerTest() override {
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
  // How a call ends whose answer the worker holds back.
  template <typename Reply>
  ErrorCode end_of(const std::function<void(Answer<Reply>)>& call) {
    worker_->holding = true;
    std::promise<ErrorCode> ended;
    loop_->post([&] {
      call([&](const Result<Reply>& reply) {
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
      charged(QuotaKind::Buffers);
    }
  }
  std::uint64_t charged(QuotaKind kind) {
    return on_loop<std::uint64_t>([&] { return state_->quotas.used(caller_.peer.uid, kind); });
  }

  static constexpr std::chrono::milliseconds kWorkerMayTake{20};

  const Caller caller_{.peer = {.pid = 1, .uid = 1000, .gid = 1000}};
  Metrics metrics_;
  std::unique_ptr<EventLoop> loop_ = EventLoop::create().value();
  std::unique_ptr<FakeWorker> worker_ = std::make_unique<FakeWorker>();
  std::unique_ptr<ControlState> state_ = std::make_unique<ControlState>(
      *loop_, metrics_, std::make_shared<const Settings>(),
      std::vector<WorkerRef>{{.device = "gpu", .worker = worker_.get(), .gpus = {"GPU-0"}}},
      kWorkerMayTake);
  SessionEntry* session_ = nullptr;
  std::thread thread_;
};

}  // namespace arcomm::test
