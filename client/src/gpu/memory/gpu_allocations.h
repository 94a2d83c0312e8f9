// GPU memory that the daemon allocated for this process (arcMemAlloc). It outlives the session: the
// descriptor is kept, to offer the memory to the daemon that comes after.
// Thread: any. Ownership: the table; taking an allocation out and letting go of it unmaps it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "client/cuda/gpu.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

struct GpuAllocation {
  std::unique_ptr<GpuMapping> mapping;
  UniqueFd memory;
  std::uint64_t bytes = 0;
};

class GpuAllocations {
 public:
  void insert(std::shared_ptr<GpuAllocation> allocation);
  // By its first byte; null where it is none.
  std::shared_ptr<GpuAllocation> find(const void* address) const;
  std::shared_ptr<GpuAllocation> take(const void* address);

 private:
  mutable std::mutex mutex_;
  std::map<const void*, std::shared_ptr<GpuAllocation>> allocations_;
};

GpuAllocations& gpu_allocations();

}  // namespace arcomm::client
