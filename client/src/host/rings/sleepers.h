// The threads of a session that sleep: one on the completion ring, the others until that one, or
// whoever has worked for them, wakes them.
// Thread: any. No call here may be made under a lock that `finished` or `has_work` takes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "proto/ring/doorbell.h"

namespace arcomm::client {

class Sleepers {
 public:
  // flag: the completion ring's, outlives this.
  explicit Sleepers(std::atomic<std::uint32_t>& flag) : completions_(flag) {}

  // After what they sleep for may have come: all look again.
  void wake();
  // For `slice` at most, unless the thread has finished() or the ring has_work().
  void sleep(std::chrono::nanoseconds slice, const std::function<bool()>& finished,
             const std::function<bool()>& has_work);

 private:
  ring::FutexDoorbell completions_;
  std::mutex mutex_;
  std::condition_variable others_;
  std::atomic<int> count_{0};
  bool ring_taken_ = false;
};

}  // namespace arcomm::client
