// A point on CLOCK_MONOTONIC after which a call gives up. Every wait of the client takes one.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>

namespace arcomm::client {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(Clock::time_point when) : when_(when) {}
  // Saturates: a caller's "forever" must not wrap into the past.
  static Deadline after(std::chrono::milliseconds span) {
    constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
    return Deadline(Clock::now() + std::clamp(span, std::chrono::milliseconds(0), kLongest));
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
  Deadline plus(std::chrono::nanoseconds span) const { return Deadline(when_ + span); }
  Deadline earlier(const Deadline& other) const { return Deadline(std::min(when_, other.when_)); }

 private:
  Clock::time_point when_;
};

}  // namespace arcomm::client
