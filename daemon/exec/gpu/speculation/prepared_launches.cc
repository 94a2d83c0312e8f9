#include "daemon/exec/gpu/speculation/prepared_launches.h"

namespace arcomm {

void PreparedLaunches::drop(Entry& entry) {
  if (!entry.parts.empty()) dropped_.push_back(std::exchange(entry.parts, {}));
  entry = {};
}

PreparedParts* PreparedLaunches::find(const PlanTuple& plans, CudaAlgorithm algorithm) {
  auto at = entries_.find(plans);
  if (at == entries_.end()) {
    if (entries_.size() == kMost) {
      const auto oldest = entries_.find(order_.front());
      drop(oldest->second);
      entries_.erase(oldest);
      order_.pop_front();
    }
    at = entries_.emplace(plans, Entry{.algorithm = algorithm, .parts = {}}).first;
    order_.push_back(plans);
  }
  Entry& entry = at->second;
  if (entry.algorithm != algorithm) {  // there is a new table
    drop(entry);
    entry.algorithm = algorithm;
  }
  if (entry.times <= kTimesBefore) ++entry.times;
  return entry.parts.empty() ? nullptr : &entry.parts;
}

bool PreparedLaunches::wants(const PlanTuple& plans) const {
  const auto at = entries_.find(plans);
  return at != entries_.end() && at->second.parts.empty() && !at->second.failed &&
         at->second.times > kTimesBefore;
}

PreparedParts* PreparedLaunches::put(const PlanTuple& plans, PreparedParts parts) {
  Entry& entry = entries_.at(plans);
  entry.failed = parts.empty();
  entry.parts = std::move(parts);
  return entry.failed ? nullptr : &entry.parts;
}

void PreparedLaunches::drop_all() {
  for (auto& [plans, entry] : entries_) drop(entry);
  entries_.clear();
  order_.clear();
}

}  // namespace arcomm
