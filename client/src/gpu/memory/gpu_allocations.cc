#include "client/src/gpu/memory/gpu_allocations.h"

#include <utility>

namespace arcomm::client {

GpuAllocations& gpu_allocations() {
  static auto* table = new GpuAllocations;  // never destroyed: threads may outlive main
  return *table;
}

void GpuAllocations::insert(std::shared_ptr<GpuAllocation> allocation) {
  const std::lock_guard lock(mutex_);
  const void* const address = allocation->mapping->address();
  allocations_[address] = std::move(allocation);
}

std::shared_ptr<GpuAllocation> GpuAllocations::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  return found != allocations_.end() ? found->second : nullptr;
}

std::shared_ptr<GpuAllocation> GpuAllocations::take(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return nullptr;
  std::shared_ptr<GpuAllocation> taken = std::move(found->second);
  allocations_.erase(found);
  return taken;
}

}  // namespace arcomm::client
