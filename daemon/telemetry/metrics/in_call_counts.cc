#include "daemon/telemetry/metrics/in_call_counts.h"

#include <algorithm>

namespace arcomm {

InCallCounts::Sum InCallCounts::read(const InCallControl& control, const Counted& counted) {
  const auto age = std::chrono::nanoseconds(Clock::now() - counted.since).count();
  const std::uint64_t most = static_cast<std::uint64_t>(age) / kLeastNs;
  Sum sum;
  for (std::uint32_t rank = 0; rank < counted.ranks; ++rank) {
    const InCallRank& one = control.ranks[rank];
    const std::uint64_t operations =
        std::min(one.operations.load(std::memory_order_relaxed), most);
    sum += {.operations = operations,
            .bytes = std::min(one.bytes.load(std::memory_order_relaxed),
                              operations * kMaxInCallBytes)};
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

InCallCounts::Sum InCallCounts::of_all() const {
  const std::lock_guard lock(mutex_);
  Sum sum = ended_;
  for (const auto& [control, counted] : live_) sum += read(*control, counted);
  return sum;
}

}  // namespace arcomm
