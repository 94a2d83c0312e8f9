// Messages from any thread to the one that owns the worker. Posting takes a lock that the worker
// holds only to swap two vectors; the worker's hot path looks at one atomic word.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "proto/ring/doorbell.h"
#include "proto/unique_fd.h"

namespace arcomm {

struct Message {
  std::function<void()> act;  // on the worker's thread
  std::function<void()>
      refuse;  // instead of act, when the worker has stopped; on the poster's or the worker's
};

class Mailbox {
 public:
  explicit Mailbox(UniqueFd event) : event_(std::move(event)), bell_(sleeps_, event_.get()) {}

  void post(Message message) {
    std::unique_lock lock(mutex_);
    if (closed_) {
      lock.unlock();
      return message.refuse();
    }
    messages_.push_back(std::move(message));
    pending_.store(true, std::memory_order_release);
    lock.unlock();
    bell_.ring();
  }

  // ---- the owner's ----
  bool pending() const { return pending_.load(std::memory_order_acquire); }
  std::vector<Message> take() {
    const std::lock_guard lock(mutex_);
    pending_.store(false, std::memory_order_relaxed);
    return std::exchange(messages_, {});
  }
  // From now on messages are refused where they are posted; what was not taken is handed back.
  std::vector<Message> close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    return std::exchange(messages_, {});
  }
  ring::EventDoorbell& bell() { return bell_; }
  int event_fd() const { return event_.get(); }

 private:
  std::mutex mutex_;
  std::vector<Message> messages_;
  bool closed_ = false;
  std::atomic<bool> pending_{false};
  std::atomic<std::uint32_t> sleeps_{0};
  UniqueFd event_;
  ring::EventDoorbell bell_;
};

}  // namespace arcomm
