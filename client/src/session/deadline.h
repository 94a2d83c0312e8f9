// A point on CLOCK_MONOTONIC after which a call gives up. Every wait of the client takes one.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <optional>

namespace arcomm::client {

// How much later than the daemon the client gives up, so that the daemon's better-informed answer
// wins.
inline constexpr std::chrono::milliseconds kGuard{60};

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // What a caller's "forever" becomes: nobody sees its end, and no sum with it wraps into the past.
  static constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  // A caller's number of milliseconds, which may be any.
  static constexpr std::chrono::milliseconds span_of(std::uint64_t milliseconds) {
    constexpr auto kMost = static_cast<std::uint64_t>(kLongest.count());
    return std::chrono::milliseconds(std::min(milliseconds, kMost));
  }

  explicit Deadline(Clock::time_point when) : when_(when) {}
  static Deadline after(std::chrono::milliseconds span) {
    return Deadline(Clock::now()).plus(span);
  }

  Clock::time_point when() const { return when_; }
  bool passed() const { return Clock::now() >= when_; }
  std::chrono::nanoseconds left() const {
    return std::max<std::chrono::nanoseconds>(when_ - Clock::now(), std::chrono::nanoseconds(0));
  }
  // For poll(2): rounded up, so that a wait never ends just before the deadline and spins.
  int left_ms() const {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left()).count();
    return static_cast<int>(std::min<long long>(ms, INT_MAX));
  }
  // Saturates.
  Deadline plus(std::chrono::milliseconds span) const {
    const auto bounded = std::clamp(span, std::chrono::milliseconds(0), kLongest);
    if (when_ > Clock::time_point::max() - bounded) return Deadline(Clock::time_point::max());
    return Deadline(when_ + bounded);
  }
  Deadline earlier(const Deadline& other) const { return Deadline(std::min(when_, other.when_)); }

 private:
  Clock::time_point when_;
};

// The deadline of a call that mostly ends before anybody asks for it, and then reads no clock. It
// counts from the first question, which comes within microseconds of the call or after a wait that
// asked.
class DeadlineOnDemand {
 public:
  explicit DeadlineOnDemand(std::chrono::milliseconds span) : span_(span) {}
  Deadline get() {
    if (!deadline_) deadline_ = Deadline::after(span_);
    return *deadline_;
  }

 private:
  const std::chrono::milliseconds span_;
  std::optional<Deadline> deadline_;
};

}  // namespace arcomm::client
