// A mutex whose wait ends at a deadline: for locks that are held while the daemon is asked
// something, or other ranks are waited for. Uncontended it costs what std::mutex does. Not
// std::timed_mutex: its clock-based lock is invisible to ThreadSanitizer, which then reports every
// user of it. Works with std::unique_lock and std::lock_guard. Thread: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>

#include "proto/futex.h"
#include "proto/status.h"

namespace arcomm::client {

class DeadlineMutex {
 public:
  using Clock = std::chrono::steady_clock;

  void lock() {
    while (!try_lock_until(Clock::time_point::max())) {
    }
  }
  bool try_lock() {
    std::uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  // Of a time that has passed: try_lock().
  bool try_lock_until(Clock::time_point when) {
    if (try_lock()) return true;
    // Whoever has waited holds it as WaitedFor, as nobody knows whether others wait still.
    while (word_.exchange(kWaitedFor, std::memory_order_acquire) != kFree) {
      const Clock::time_point now = Clock::now();
      if (now >= when) return false;
      futex_wait(word_, kWaitedFor, when - now, FutexScope::Process);
    }
    passed_over_ = 0;
    return true;
  }
  void unlock() {
    const bool is_patient = is_waited_for() && ++passed_over_ > kMostPassedOver;
    if (word_.exchange(kFree, std::memory_order_release) != kWaitedFor) return;
    futex_wake_one(word_, FutexScope::Process);
    if (is_patient) let_it_be_taken();
  }

 private:
  static constexpr std::uint32_t kFree = 0, kHeld = 1, kWaitedFor = 2;
  // Who comes again at once takes it before the one that was woken has a core. So often, since
  // handing it over each time would cost a wake-up for each turn; then not until it was taken.
  static constexpr std::uint32_t kMostPassedOver = 16;
  static constexpr std::chrono::microseconds kWakes{500};  // a thread that is woken, at most

  bool is_waited_for() const { return word_.load(std::memory_order_relaxed) == kWaitedFor; }
  void let_it_be_taken() const {
    const Clock::time_point until = Clock::now() + kWakes;
    while (word_.load(std::memory_order_relaxed) == kFree && Clock::now() < until)
      std::this_thread::yield();
  }

  std::atomic<std::uint32_t> word_{kFree};
  std::uint32_t passed_over_ = 0;  // turns since one that was waited for; whose turn it is has it
};

// What a call gets that waited for such a lock until its deadline. doing: "telling the daemon about
// this memory".
inline Error other_thread_busy(std::string_view doing) {
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "another thread was still ", doing);
}

}  // namespace arcomm::client
