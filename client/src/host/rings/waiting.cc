#include "client/src/host/rings/waiting.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

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

template <typename Finished>
bool Waiting::wait_while_working(std::uint64_t bytes, Deadline deadline, Finished finished) {
  // Whoever waits copies for everyone, but not beyond what it waits for.
  const Submission::Enough enough = [&] { return finished() || deadline.passed(); };
  submission_.work(enough);
  if (finished()) return true;
  static const bool one_core = std::thread::hardware_concurrency() < 2;
  const auto start = Deadline::Clock::now();
  const auto spin_until = one_core || submission_.is_oversubscribed() ? start : start + kSpin;
  const auto yield_until = start + (bytes <= kSmallBytes ? kYieldSmall : kYieldLarge);
  const auto awake = [&](Deadline::Clock::time_point now) {
    return now < yield_until && !lost_time_.sleeps(LostTime::ns_of(now)) &&
           !submission_.core_is_shared();
  };
  for (auto now = start; awake(now); now = Deadline::Clock::now()) {
    if (now >= deadline.when()) return false;
    if (now < spin_until) {
      for (int i = 0; i < 8; ++i) pause_briefly();
    } else {
      ::sched_yield();
    }
    lost_time_.paused(LostTime::ns_of(now), LostTime::ns_of(Deadline::Clock::now()));
    submission_.work(enough);
    if (finished()) return true;
  }
  while (!finished()) {
    if (deadline.passed()) return false;
    submission_.sleep(std::min<std::chrono::nanoseconds>(kSleepSlice, deadline.left()), finished);
    submission_.work(enough);
    if (!finished()) submission_.check();  // a system call
  }
  return true;
}

bool Waiting::wait_for(const Operation& operation, Deadline deadline) {
  return wait_while_working(
      std::max(operation.call.send_bytes(), operation.call.recv_bytes()), deadline,
      [&operation] { return operation.done.load(std::memory_order_acquire); });
}

bool Waiting::wait_for(const Question& question, Deadline deadline) {
  return wait_while_working(0, deadline, [&] {
    return question.is_answered.load(std::memory_order_acquire) || submission_.lost();
  });
}

bool Waiting::wait_until_idle(const Member& member, Deadline deadline) {
  return wait_while_working(
      0, deadline, [&member] { return member.active.load(std::memory_order_acquire) == 0; });
}

bool Waiting::wait_for_room(const Member& member, Deadline deadline) {
  if (member.queued.load(std::memory_order_relaxed) < kMostQueued) return true;
  return wait_while_working(0, deadline, [&member] {
    return member.queued.load(std::memory_order_relaxed) < kMostQueued;
  });
}

}  // namespace arcomm::client
