// A device worker on a thread of its own, and clients in this process that talk to it through real
// segments. The clients use the worker's own mapping of each ring, so that the thread sanitizer
// sees both ends.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/exec/host/host_backend.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "daemon/telemetry/flight_recorder.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/ring/consumer.h"
#include "proto/ring/doorbell.h"
#include "proto/ring/producer.h"
#include "transport/device/host/host_device.h"

namespace arcomm::test {

using std::chrono::milliseconds;

inline constexpr auto kPatience = std::chrono::seconds(60);  // under a sanitizer on a busy machine

// Calls fn(done) and waits for what done is told.
template <typename T, typename Fn>
Result<T> await(Fn fn) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  std::future<Result<T>> future = promise->get_future();
  fn([promise](Result<T> result) { promise->set_value(std::move(result)); });
  if (future.wait_for(kPatience) != std::future_status::ready) {
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the worker did not answer");
  }
  return future.get();
}

// A memfd sealed against shrinking, mapped here as a client would.
struct SharedBytes {
  explicit SharedBytes(std::size_t size) : bytes((size + 4095) / 4096 * 4096) {
    fd.reset(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
      std::abort();
    }
    data = static_cast<std::byte*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  }
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
  ~SharedBytes() { ::munmap(data, bytes); }

  BufferSpec spec() const {
    return {.memory = duplicate(fd.get()), .handle = {.length_bytes = bytes}};
  }
  template <typename T>
  T* as(std::size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(data + offset_bytes);
  }

  std::size_t bytes;
  UniqueFd fd;
  std::byte* data = nullptr;
};

// One rank's end: a session, and at most one buffer that holds whatever the test puts in.
class Client {
 public:
  Client(DeviceWorker& worker, SessionId id, std::uint32_t slots, pid_t pid, SessionLimits limits)
      : worker_(worker), id_(id) {
    Result<ring::Segment> segment = ring::Segment::create(slots, id, ring::kPlansInRing);
    EXPECT_TRUE(segment.ok());
    control_ = &segment->control();
    // The worker unmaps the segment when it closes the session; what it last said is read here.
    keeper_.emplace(ring::Segment::open(duplicate(segment->fd())).value());
    request_slots_ = segment->requests();
    completion_slots_ = segment->completions();
    producer_.emplace(segment->requests());
    consumer_.emplace(segment->completions());
    Result<UniqueFd> event = ring::EventDoorbell::create();
    EXPECT_TRUE(event.ok());
    event_ = duplicate(event->get());
    bell_.emplace(control_->requests.consumer_sleeps, event_.get());
    SessionSpec spec{id,
                     PeerCredentials{pid, 1000, 1000},
                     "client " + std::to_string(pid),
                     std::move(*segment),
                     std::move(*event),
                     limits};
    auto opened = std::make_shared<SessionSpec>(std::move(spec));
    const Result<void> open =
        await<void>([&](auto done) { worker_.open_session(std::move(*opened), done); });
    EXPECT_TRUE(open.ok());
  }

  SessionId id() const { return id_; }
  ring::ControlLines& control() { return *control_; }
  ring::RingView<ring::WorkRequest> request_view() { return request_slots_; }
  ring::RingView<ring::Completion> completion_view() { return completion_slots_; }
  ring::SessionState state() const {
    return static_cast<ring::SessionState>(
        keeper_->control().session_state.load(std::memory_order_acquire));
  }

  SharedBytes& memory(std::size_t bytes) {
    memories_.push_back(std::make_unique<SharedBytes>(bytes));
    const Result<BufferId> added = await<BufferId>(
        [&](auto done) { worker_.add_buffer(id_, memories_.back()->spec(), done); });
    EXPECT_TRUE(added.ok()) << (added ? "" : added.error().to_string());
    buffer = added ? *added : BufferId{};
    return *memories_.back();
  }

  SharedBytes& last_memory() { return *memories_.back(); }

  // A request with everything in place; the test spoils what it likes. Recv lies behind send in one
  // buffer.
  ring::WorkRequest request(std::uint64_t count, DType dtype = DType::Float32,
                            ReduceOp op = ReduceOp::Sum) const {
    ring::WorkRequest request;
    request.dtype = static_cast<std::uint8_t>(dtype);
    request.op = static_cast<std::uint8_t>(op);
    request.member = member.bits();
    request.seq = seq;
    request.ticket = 1000 + seq;
    request.send_buffer = request.recv_buffer = buffer.bits();
    request.recv_offset_bytes = recv_offset;
    request.send_count = request.recv_count = count;
    request.submitted_ns = now_ns();
    return request;
  }
  // Pushes as it is, and counts the seq.
  void submit(const ring::WorkRequest& request) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (producer_->push(request) == ring::Push::Full &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    bell_->ring();
    ++seq;
  }
  void call(std::uint64_t count, DType dtype = DType::Float32, ReduceOp op = ReduceOp::Sum) {
    submit(request(count, dtype, op));
  }
  ring::Producer<ring::WorkRequest>& producer() { return *producer_; }
  // For ends that are not these: who uses them leaves these alone.
  ring::Segment opened() const { return ring::Segment::open(duplicate(keeper_->fd())).value(); }
  UniqueFd event() const { return duplicate(event_.get()); }
  void ring_bell() { bell_->ring(); }

  // The next completion, or nothing within `patience`.
  std::optional<ring::Completion> next(std::chrono::nanoseconds patience = kPatience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    ring::Completion completion;
    while (true) {
      const ring::Pop popped = consumer_->pop(completion);
      if (popped == ring::Pop::Done) return completion;
      if (popped == ring::Pop::Corrupt || std::chrono::steady_clock::now() >= until)
        return std::nullopt;
      std::this_thread::yield();
    }
  }

  MemberId member;
  BufferId buffer;
  std::uint64_t seq = 0;
  std::uint64_t recv_offset = 0;

 private:
  DeviceWorker& worker_;
  SessionId id_;
  ring::ControlLines* control_ = nullptr;
  std::optional<ring::Segment> keeper_;
  ring::RingView<ring::WorkRequest> request_slots_;
  ring::RingView<ring::Completion> completion_slots_;
  std::optional<ring::Producer<ring::WorkRequest>> producer_;
  std::optional<ring::Consumer<ring::Completion>> consumer_;
  UniqueFd event_;
  std::optional<ring::EventDoorbell> bell_;
  std::vector<std::unique_ptr<SharedBytes>> memories_;
};

class WorkerTest : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override { finish(); }

  void start(Settings settings) {
    finish();
    settings_ = std::make_shared<Settings>(std::move(settings));
    device_ = HostDevice::create({}).value();
    recorder_ = FlightRecorder::create(1024).value();
    metrics_ = std::make_unique<Metrics>();
    worker_ = DeviceWorker::create(
                  {.device = device_->name(),
                   .open_backend = host_backend_on(*device_),
                   .recorder = *recorder_,
                   .metrics = *metrics_,
                   .settings = settings_,
                   .tuning = std::make_shared<TuningTable>(default_tuning()),
                   .events = {.session_lost =
                                  [this](SessionId id, Reason reason, const std::string&) {
                                    const std::lock_guard lock(mutex_);
                                    lost_.emplace_back(id, reason);
                                  },
                              .communicator_revoked =
                                  [this](const UniqueIdBytes&, std::uint64_t, Reason reason,
                                         const std::string&) {
                                    const std::lock_guard lock(mutex_);
                                    revoked_.push_back(reason);
                                  }}})
                  .value();
    thread_ = std::thread([this] { worker_->run(); });
  }
  void finish() {
    if (worker_ == nullptr) return;
    worker_->stop();
    if (thread_.joinable()) thread_.join();
    clients_.clear();
    worker_.reset();
  }

  Client& client(std::uint32_t slots = 64, SessionLimits limits = {}) {
    const SessionId id{next_session_++, 1};
    clients_.push_back(std::make_unique<Client>(*worker_, id, slots,
                                                static_cast<pid_t>(800 + clients_.size()), limits));
    return *clients_.back();
  }
  // The clients' ranks are their places in the list.
  std::vector<MemberId> form(const std::vector<Client*>& ranks, std::uint8_t name = 1,
                             std::uint64_t epoch = 1) {
    CommunicatorSpec spec;
    spec.unique_id.fill(std::byte{name});
    spec.epoch = epoch;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      spec.ranks.push_back({ranks[i]->id(), static_cast<Rank>(i)});
    Result<std::vector<MemberId>> formed =
        await<std::vector<MemberId>>([&](auto done) { worker_->form_communicator(spec, done); });
    EXPECT_TRUE(formed.ok()) << (formed ? "" : formed.error().to_string());
    if (!formed) return {};
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ranks[i]->member = (*formed)[i];
      ranks[i]->seq = 0;
    }
    return *formed;
  }
  // So many clients with a buffer each, in one communicator. send at 0, recv at `bytes`.
  std::vector<Client*> group(int ranks, std::size_t bytes = 4096, std::uint32_t slots = 64) {
    std::vector<Client*> made;
    for (int i = 0; i < ranks; ++i) {
      Client& one = client(slots);
      one.memory(2 * bytes);
      one.recv_offset = bytes;
      made.push_back(&one);
    }
    form(made);
    return made;
  }
  Result<void> close(Client& client, Reason reason, const std::string& why = "killed") {
    return await<void>([&](auto done) { worker_->close_session(client.id(), reason, why, done); });
  }
  WorkerSnapshot inspect() {
    return await<WorkerSnapshot>([&](auto done) { worker_->inspect(done); }).value();
  }

  std::shared_ptr<Settings> settings_;
  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<FlightRecorder> recorder_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<DeviceWorker> worker_;
  std::thread thread_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint32_t next_session_ = 0;
  std::mutex mutex_;
  std::vector<std::pair<SessionId, Reason>> lost_;
  std::vector<Reason> revoked_;
};

inline ErrorCode code_of(const ring::Completion& completion) {
  return static_cast<ErrorCode>(completion.code);
}
inline Reason reason_of(const ring::Completion& completion) {
  return static_cast<Reason>(completion.reason);
}

}  // namespace arcomm::test
