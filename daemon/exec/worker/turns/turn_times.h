// How busy a worker is: the share of its turns that found work, by the second, its slowest turn,
// and how it has waited for work otherwise. Reads no clock. Thread: the worker's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {

class TurnTimes {
 public:
  explicit TurnTimes(Metrics& metrics) : metrics_(metrics) {}

  void begin(std::uint64_t now_ns) { window_ns_ = now_ns; }
  // A turn, from the end of the one before to its own. Whether busy_fraction() is a new one.
  bool note(std::uint64_t before_ns, std::uint64_t after_ns, bool worked) {
    if (worked) {
      busy_ns_ += after_ns - before_ns;
    } else {
      waited(Waiting::Spin, before_ns, after_ns);
    }
    if (after_ns - before_ns > slowest_ns_) {
      slowest_ns_ = after_ns - before_ns;
      metrics_.worker_turn_ns.note(slowest_ns_);
    }
    if (after_ns - window_ns_ < kWindowNs) return false;
    busy_fraction_ = static_cast<double>(busy_ns_) / static_cast<double>(after_ns - window_ns_);
    metrics_.worker_busy_ns.add(busy_ns_);
    for (const Waiting how : {Waiting::Spin, Waiting::Yield, Waiting::Sleep})
      metrics_.worker_wait_ns[how].add(std::exchange(waited_of(how), 0));
    busy_ns_ = 0;
    window_ns_ = after_ns;
    return true;
  }
  // Between two turns.
  void waited(Waiting how, std::uint64_t from_ns, std::uint64_t to_ns) {
    waited_of(how) += to_ns - from_ns;
  }
  // It has slept until now: what was before is no part of the share.
  void slept(std::uint64_t now_ns) {
    window_ns_ = std::max(window_ns_, now_ns > kWindowNs ? now_ns - kWindowNs : 0);
  }
  double busy_fraction() const { return busy_fraction_; }
  std::uint64_t slowest_ns() const { return slowest_ns_; }

 private:
  static constexpr std::uint64_t kWindowNs = 1'000'000'000;

  std::uint64_t& waited_of(Waiting how) { return waited_ns_[static_cast<std::size_t>(how)]; }

  Metrics& metrics_;
  std::array<std::uint64_t, kWaitings> waited_ns_{};  // since the window began
  std::uint64_t window_ns_ = 0, busy_ns_ = 0, slowest_ns_ = 0;
  double busy_fraction_ = 0;
};

}  // namespace arcomm
