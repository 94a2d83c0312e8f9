// How busy a worker is: the share of its turns that found work, by the second, and its slowest
// turn. Thread: the worker's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {

class TurnTimes {
 public:
  explicit TurnTimes(Metrics& metrics) : metrics_(metrics) {}

  void begin(std::uint64_t now_ns) { window_ns_ = now_ns; }
  // A turn, from the end of the one before to its own. Whether busy_fraction() is a new one.
  bool note(std::uint64_t before_ns, std::uint64_t after_ns, bool worked) {
    if (worked) busy_ns_ += after_ns - before_ns;
    if (after_ns - before_ns > slowest_ns_) {
      slowest_ns_ = after_ns - before_ns;
      metrics_.worker_turn_ns.note(slowest_ns_);
    }
    if (after_ns - window_ns_ < kWindowNs) return false;
    busy_fraction_ = static_cast<double>(busy_ns_) / static_cast<double>(after_ns - window_ns_);
    metrics_.worker_busy_ns.add(busy_ns_);
    busy_ns_ = 0;
    window_ns_ = after_ns;
    return true;
  }
  // It has slept until now: what was before is no part of the share.
  void slept(std::uint64_t now_ns) {
    window_ns_ = std::max(window_ns_, now_ns > kWindowNs ? now_ns - kWindowNs : 0);
  }
  double busy_fraction() const { return busy_fraction_; }
  std::uint64_t slowest_ns() const { return slowest_ns_; }

 private:
  static constexpr std::uint64_t kWindowNs = 1'000'000'000;

  Metrics& metrics_;
  std::uint64_t window_ns_ = 0, busy_ns_ = 0, slowest_ns_ = 0;
  double busy_fraction_ = 0;
};

}  // namespace arcomm
