#include "client/src/host/rings/sleepers.h"

namespace arcomm::client {

void Sleepers::wake() {
  std::atomic_thread_fence(
      std::memory_order_seq_cst);  // pairs with sleep()'s: done first, then look
  if (count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  others_.notify_all();
  if (ring_taken_) completions_.ring_all();
}

void Sleepers::sleep(std::chrono::nanoseconds slice, const std::function<bool()>& finished,
                     const std::function<bool()>& has_work) {
  std::unique_lock asleep(mutex_);
  count_.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with wake()
  if (finished()) {
    // Nothing to sleep for.
  } else if (ring_taken_) {
    others_.wait_for(asleep, slice);
  } else {
    ring_taken_ = true;
    asleep.unlock();
    completions_.arm();
    if (!has_work() && !finished()) completions_.sleep(slice);
    completions_.disarm();
    asleep.lock();
    ring_taken_ = false;
    others_.notify_one();  // the ring needs a new watcher, if this thread is done
  }
  count_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace arcomm::client
