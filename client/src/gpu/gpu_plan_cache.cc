#include "client/src/gpu/gpu_plan_cache.h"

#include <utility>

namespace arcomm::client {

std::size_t GpuPlanCache::Hash::operator()(const GpuPlanKey& key) const {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  };
  mix(key.send);
  mix(key.recv);
  const OperationSpec& spec = key.spec;
  mix(spec.send_count);
  mix(spec.recv_count);
  const auto byte = [](auto value) { return std::uint64_t{static_cast<std::uint8_t>(value)}; };
  mix(std::uint64_t{static_cast<std::uint32_t>(spec.root)} << 32 | byte(spec.collective) << 24 |
      byte(spec.codec) << 16 | byte(spec.dtype) << 8 | byte(spec.op));
  mix(key.send_buffer.bits());
  mix(key.recv_buffer.bits());
  return static_cast<std::size_t>(hash);
}

GpuPlan* GpuPlanCache::find(const GpuPlanKey& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, found->second);
  return &*found->second;
}

GpuPlan& GpuPlanCache::insert(const GpuPlan& plan) {
  plans_.push_front(plan);
  by_key_[plans_.front().key] = plans_.begin();
  return plans_.front();
}

void GpuPlanCache::erase(const GpuPlan& plan) {
  const auto found = by_key_.find(plan.key);
  if (found == by_key_.end()) return;
  const List::iterator entry = found->second;
  by_key_.erase(found);
  plans_.erase(entry);
}

std::vector<GpuPlan*> GpuPlanCache::oldest(std::size_t most) {
  std::vector<GpuPlan*> found;
  for (auto plan = plans_.rbegin(); plan != plans_.rend() && found.size() < most; ++plan) {
    if (plan->may_go()) found.push_back(&*plan);
  }
  return found;
}

std::vector<GpuPlan*> GpuPlanCache::users_of(BufferId buffer) {
  std::vector<GpuPlan*> found;
  for (GpuPlan& plan : plans_) {
    if (plan.key.send_buffer == buffer || plan.key.recv_buffer == buffer) found.push_back(&plan);
  }
  return found;
}

std::vector<GpuPlan*> GpuPlanCache::all() {
  std::vector<GpuPlan*> found;
  for (GpuPlan& plan : plans_) found.push_back(&plan);
  return found;
}

bool has_ended(const PlanNote& note, std::uint32_t launched, std::uint64_t path_done) {
  if (launched == 0) return true;
  const std::uint32_t done = done_from(path_done).number;
  return note.posted == launched && static_cast<std::int32_t>(done - note.number) >= 0;
}

}  // namespace arcomm::client
