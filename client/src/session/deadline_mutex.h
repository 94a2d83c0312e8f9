// A mutex whose wait ends at a deadline, for locks that are held while the daemon is asked
// something. Not std::timed_mutex: its clock-based lock is invisible to ThreadSanitizer, which then
// reports every user of it. Works with std::unique_lock and std::lock_guard. Thread: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string_view>

#include "proto/status.h"

namespace arcomm::client {

class DeadlineMutex {
 public:
  void lock() {
    std::unique_lock inner(mutex_);
    released_.wait(inner, [this] { return !held_; });
    held_ = true;
  }
  bool try_lock() {
    const std::lock_guard inner(mutex_);
    return !held_ && (held_ = true);
  }
  bool try_lock_until(std::chrono::steady_clock::time_point when) {
    std::unique_lock inner(mutex_);
    if (!released_.wait_until(inner, when, [this] { return !held_; })) return false;
    return held_ = true;
  }
  void unlock() {
    {
      const std::lock_guard inner(mutex_);
      held_ = false;
    }
    released_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
};

// What a call gets that waited for such a lock until its deadline. doing: "telling the daemon about
// this memory".
inline Error other_thread_busy(std::string_view doing) {
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "another thread was still ", doing);
}

}  // namespace arcomm::client
