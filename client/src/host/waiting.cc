// How a thread waits: it works for everyone while it does. First it spins, if the machine has cores
// to spare; then it yields between looks, for as long as a small operation may take, because waking
// from sleep costs about 40 us and a yield about one; then it sleeps on the completion ring.
#include <sched.h>

#include <algorithm>
#include <thread>

#include "client/src/host/submission.h"
#include "transport/device/pause.h"

namespace arcomm::client {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kSpin{20};
constexpr microseconds kYieldSmall{300};
// A large operation lasts long enough for a wake-up not to matter, and its reduction wants the
// cores.
constexpr microseconds kYieldLarge{50};
constexpr std::uint64_t kSmallBytes = 512 << 10;
// Bounds how late a dead daemon is noticed.
constexpr milliseconds kSleepSlice{20};
constexpr std::size_t kMostQueued = 1024;

}  // namespace

void Submission::work(const Enough& enough) {
  bool wake = false;
  {
    Lock lock(mutex_, std::try_to_lock);
    if (!lock) return;  // someone else is at it, for us too
    reap();
    copying_.run(lock, enough);
    look_at_state();
    wake = std::exchange(settled_, false) || !copying_.empty();  // another thread may copy on
  }
  if (wake) wake_others();
  // At once: what this thread waits for may itself wait for peers that go on only when told.
  if (any_abort_due_.load(std::memory_order_acquire) && !enough()) tell_aborts_();
}

void Submission::progress(std::chrono::microseconds copying) {
  const auto until = Deadline::Clock::now() + copying;
  work([until] { return Deadline::Clock::now() >= until; });
}

void Submission::wake_others() {
  std::atomic_thread_fence(
      std::memory_order_seq_cst);  // pairs with sleep()'s: done first, then look
  if (num_sleepers_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(sleep_mutex_);
  sleepers_.notify_all();
  if (futex_taken_) completions_doorbell_.ring_all();
}

template <typename Finished>
void Submission::sleep(std::chrono::nanoseconds slice, Finished finished) {
  std::unique_lock asleep(sleep_mutex_);
  num_sleepers_.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with wake_others()
  if (finished()) {
    // Nothing to sleep for.
  } else if (futex_taken_) {
    sleepers_.wait_for(asleep, slice);
  } else {
    futex_taken_ = true;
    asleep.unlock();
    completions_doorbell_.arm();
    bool something = true;
    {
      const Lock lock(mutex_);
      something = completions_.peek() != ring::Pop::Empty || !copying_.empty();
    }
    if (!something && !finished()) completions_doorbell_.sleep(slice);
    completions_doorbell_.disarm();
    asleep.lock();
    futex_taken_ = false;
    sleepers_.notify_one();  // the ring needs a new watcher, if this thread is done
  }
  num_sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

template <typename Finished>
bool Submission::wait_while_working(std::uint64_t bytes, Deadline deadline, Finished finished) {
  // Whoever waits copies for everyone, but not beyond what it waits for.
  const Enough enough = [&] { return finished() || deadline.passed(); };
  work(enough);
  if (finished()) return true;
  static const bool one_core = std::thread::hardware_concurrency() < 2;
  const auto start = Deadline::Clock::now();
  const auto spin_until =
      one_core || segment_.control().oversubscribed.load(std::memory_order_relaxed) != 0
          ? start
          : start + kSpin;
  const auto yield_until = start + (bytes <= kSmallBytes ? kYieldSmall : kYieldLarge);
  for (auto now = start; now < yield_until; now = Deadline::Clock::now()) {
    if (now >= deadline.when()) return false;
    if (now < spin_until) {
      for (int i = 0; i < 8; ++i) pause_briefly();
    } else {
      ::sched_yield();
    }
    work(enough);
    if (finished()) return true;
  }
  while (!finished()) {
    if (deadline.passed()) return false;
    sleep(std::min<std::chrono::nanoseconds>(kSleepSlice, deadline.left()), finished);
    check();
    work(enough);
  }
  return true;
}

bool Submission::wait_for(const Operation& operation, Deadline deadline) {
  return wait_while_working(
      std::max(operation.call.send_bytes(), operation.call.recv_bytes()), deadline,
      [&operation] { return operation.done.load(std::memory_order_acquire); });
}

bool Submission::wait_until_idle(const Member& member, Deadline deadline) {
  return wait_while_working(
      0, deadline, [&member] { return member.active.load(std::memory_order_acquire) == 0; });
}

bool Submission::wait_for_room(const Member& member, Deadline deadline) {
  if (member.queued.load(std::memory_order_relaxed) < kMostQueued) return true;
  return wait_while_working(0, deadline, [&member] {
    return member.queued.load(std::memory_order_relaxed) < kMostQueued;
  });
}

}  // namespace arcomm::client
