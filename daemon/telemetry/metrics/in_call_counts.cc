#include "daemon/telemetry/metrics/in_call_counts.h"

#include <algorithm>

namespace arcomm {

std::uint64_t InCallCounts::operations(const InCallControl& control, const Counted& counted,
                                       std::uint32_t rank) {
  const auto age = std::chrono::nanoseconds(Clock::now() - counted.since).count();
  return std::min(control.ranks[rank].operations.load(std::memory_order_relaxed),
                  static_cast<std::uint64_t>(age) / kLeastNs);
}

InCallCounts::Sum InCallCounts::read(const InCallControl& control, const Counted& counted) {
  Sum sum;
  for (std::uint32_t rank = 0; rank < counted.ranks; ++rank) {
    const std::uint64_t its = operations(control, counted, rank);
    const std::uint64_t bytes = control.ranks[rank].bytes.load(std::memory_order_relaxed);
    sum += {.operations = its, .bytes = std::min(bytes, its * kMaxInCallBytes)};
  }
  return sum;
}

void InCallCounts::add(const InCallControl& control, std::uint32_t ranks) {
  const std::lock_guard lock(mutex_);
  live_[&control] = {.ranks = std::min(ranks, kMaxInCallRanks), .since = Clock::now()};
}

void InCallCounts::remove(const InCallControl& control) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(&control);
  if (found == live_.end()) return;
  ended_ += read(control, found->second);
  live_.erase(found);
}

InCallCounts::Sum InCallCounts::of(const InCallControl& control) const {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(&control);
  return found == live_.end() ? Sum{} : read(control, found->second);
}

std::uint64_t InCallCounts::operations_of(const InCallControl& control, std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(&control);
  return found == live_.end() || rank >= found->second.ranks
             ? 0
             : operations(control, found->second, rank);
}

InCallCounts::Sum InCallCounts::of_all() const {
  const std::lock_guard lock(mutex_);
  Sum sum = ended_;
  for (const auto& [control, counted] : live_) sum += read(*control, counted);
  return sum;
}

}  // namespace arcomm
