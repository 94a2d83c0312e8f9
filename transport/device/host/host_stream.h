// A stream of the host device: a bounded queue of tasks and the thread that runs them in order.
// Threads: one enqueues; the stream's own runs; any may query or synchronize. Enqueuing is a store
// and, only when the thread sleeps, a wake-up; it allocates nothing and takes no lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/device/host/host_event.h"
#include "transport/device/lost_time.h"
#include "transport/device/stream.h"

namespace arcomm {

class HostStream final : public StreamRef::Backing {
 public:
  // slots: a power of two.
  static Result<std::unique_ptr<HostStream>> create(std::string_view name, std::uint32_t slots,
                                                    std::chrono::nanoseconds spin);
  // Runs what was enqueued, then ends the thread.
  ~HostStream() override;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  Enqueue enqueue(StreamTask task) override;
  Enqueue record(EventRef event) override;
  Enqueue wait_for(EventRef event) override;
  bool query() const override;
  Status synchronize(std::chrono::nanoseconds timeout) const override;

 private:
  // Either a task, or an event to be reached (`reaches`) or waited for, up to its record `number`.
  struct Slot {
    StreamTask task{};
    HostEvent* event = nullptr;
    std::uint64_t number = 0;
    bool reaches = false;
  };

  HostStream(std::string name, std::uint32_t slots, std::chrono::nanoseconds spin)
      : name_(std::move(name)), spin_(spin), slots_(slots) {}

  Enqueue push(const Slot& slot);
  void run();                           // the thread
  bool await_work(std::uint64_t head);  // false: nothing will come any more
  void execute(const Slot& slot);
  bool reached(std::uint64_t position) const;  // every slot before it has run

  std::string name_;
  std::chrono::nanoseconds spin_;
  std::vector<Slot> slots_;
  // The enqueuing thread's line.
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  std::uint64_t head_seen_ = 0;  // head_ as the enqueuing thread last saw it
  // The running thread's line.
  alignas(64) std::atomic<std::uint64_t> head_{0};  // slots before it have run
  mutable std::atomic<std::uint32_t> turn_{
      0};  // futex of synchronize(): grows while waiters_ is not 0
  // Touched when someone sleeps.
  alignas(64) std::atomic<std::uint32_t> asleep_{
      0};  // futex of the running thread: 1 while it sleeps
  std::atomic<bool> closing_{false};
  mutable std::atomic<std::uint32_t> waiters_{0};
  LostTime lost_time_;  // the running thread's
  std::thread thread_;
};

}  // namespace arcomm
