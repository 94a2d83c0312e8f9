// Messages from any thread to the one that owns the worker. Posting takes a lock that the worker
// holds only to swap two vectors; the worker's hot path looks at one atomic word.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
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
  bool has_some() const { return pending_.load(std::memory_order_acquire) || !taken_.empty(); }
  // Acts on what was posted, for about so long: a user whose sixty processes die at once sends as
  // many messages, and requests are read in between. Whether there was something.
  bool act(std::uint64_t budget_ns) {
    if (pending_.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex_);
      pending_.store(false, std::memory_order_relaxed);
      take();
    }
    if (taken_.empty()) return false;
    const std::uint64_t until = now_ns() + budget_ns;
    do {
      const Message message = std::move(taken_.front());
      taken_.pop_front();
      message.act();
    } while (!taken_.empty() && now_ns() < until);
    return true;
  }
  // From now on messages are refused where they are posted.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    take();
  }
  // Those that were posted before close() and not acted on.
  void refuse_rest() {
    for (const Message& message : std::exchange(taken_, {})) message.refuse();
  }
  ring::EventDoorbell& bell() { return bell_; }
  int event_fd() const { return event_.get(); }

 private:
  void take() {  // locked
    for (Message& message : messages_) taken_.push_back(std::move(message));
    messages_.clear();
  }

  std::mutex mutex_;
  std::vector<Message> messages_;
  bool closed_ = false;
  std::atomic<bool> pending_{false};
  std::atomic<std::uint32_t> sleeps_{0};
  UniqueFd event_;
  ring::EventDoorbell bell_;
  std::deque<Message> taken_;  // and not acted on yet; the owner's
};

}  // namespace arcomm
