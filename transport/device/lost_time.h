// Notices that this thread's core is given to others, and says when to sleep instead of spinning.
//
// A thread that spins or yields on a core that others use pays with its own time slice: it is
// preempted for milliseconds just when what it waits for has come, and holds up all that wait for
// it. A thread that sleeps is woken within microseconds there, because the kernel prefers a thread
// that has not had its share. On a core of one's own it is the other way round: waking an idle core
// takes tens of microseconds, and spinning costs nobody anything.
//
// A pause or a yield that took as long as a time slice is time lost to others. Where little else
// is left, it is slept for a while, and tried again; where time is lost again, soon, the while is
// four times as long. What is lost now and then is borne: on a core that others use now and then,
// spinning is the faster wait still.
//
// The kernel's count of involuntary switches tells less. A yield to another rank is one as well: a
// worker on quiet cores has one for nearly every operation of 3 us. Where others keep the cores
// busy a thread that sleeps has hardly any, 5 in 2,500 operations of 1 KB, but while it works;
// there is nothing else to do then.
//
// Thread: any, without locks; two that notice at once count as one. Nanoseconds of any clock that
// only grows.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace arcomm {

class LostTime {
 public:
  // No pause and no interrupt takes so long, and no time slice less.
  static constexpr std::uint64_t kLostNs = 500'000;
  // The core is taken where less than this part of what was lost is left.
  static constexpr std::uint64_t kLeftPart = 8;
  static constexpr std::uint64_t kFirstSleepNs = 2'000'000;
  // A try costs a few time slices: about one in a hundred at this.
  static constexpr std::uint64_t kLongestSleepNs = 1'000'000'000;
  // Of pauses with nothing lost; a busy core, too, lets a thread run for a slice or two.
  static constexpr std::uint64_t kQuietNs = 50'000'000;

  static std::uint64_t ns_of(std::chrono::steady_clock::time_point when) {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(when.time_since_epoch()).count());
  }

  // Is sleep the better wait?
  bool sleeps(std::uint64_t now_ns) const {
    return now_ns < sleep_until_ns_.load(std::memory_order_relaxed);
  }

  // The thread did nothing but pause, or yield, from then until now.
  void paused(std::uint64_t from_ns, std::uint64_t to_ns) {
    const std::uint64_t span = to_ns > from_ns ? to_ns - from_ns : 0;
    const std::uint64_t left = left_ns_.load(std::memory_order_relaxed);
    if (span < kLostNs) {
      left_ns_.store(left + span, std::memory_order_relaxed);
      return;
    }
    left_ns_.store(0, std::memory_order_relaxed);
    const std::uint64_t kept = kept_ns_.load(std::memory_order_relaxed) + left;
    if (left >= span / kLeftPart) {
      kept_ns_.store(kept, std::memory_order_relaxed);
    } else {
      lose(to_ns, kept);
    }
  }

 private:
  void lose(std::uint64_t now_ns, std::uint64_t kept_ns) {
    if (sleeps(now_ns)) return;  // another thread noticed
    const std::uint64_t before = sleep_ns_.load(std::memory_order_relaxed);
    // What was kept since tells more than how long ago it was: a thread that does not wait loses
    // nothing.
    const bool was_quiet = before == 0 || kept_ns >= std::max(before, kQuietNs);
    const std::uint64_t sleep = was_quiet ? kFirstSleepNs : std::min(4 * before, kLongestSleepNs);
    sleep_ns_.store(sleep, std::memory_order_relaxed);
    kept_ns_.store(0, std::memory_order_relaxed);
    sleep_until_ns_.store(now_ns + sleep, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> sleep_until_ns_{0};
  std::atomic<std::uint64_t> sleep_ns_{0};  // the last while
  std::atomic<std::uint64_t> kept_ns_{0};   // paused since then, without what was lost
  std::atomic<std::uint64_t> left_ns_{0};   // paused since the last loss
};

}  // namespace arcomm
