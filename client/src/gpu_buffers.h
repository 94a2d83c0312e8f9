// The allocations of GPU memory that the daemon knows in one session. A pointer finds its
// allocation by asking CUDA, so that every pointer inside works. Base and identity are the key: an
// allocation that was freed is given back to the daemon when its place is taken, or at the latest
// when another one is registered.
// Thread: any. The daemon is asked under the lock; the lock's wait ends at the call's deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "client/device/gpu.h"
#include "client/src/deadline.h"
#include "client/src/deadline_mutex.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

struct GpuBuffer {
  GpuRange range;
  BufferId id{};

  std::uint64_t offset_of(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - range.base;
  }
  bool holds(const void* address, std::uint64_t bytes) const {
    const std::uint64_t offset = offset_of(address);  // of an address below the base: beyond it
    return offset <= range.bytes && bytes <= range.bytes - offset;
  }
};

class GpuBuffers {
 public:
  struct Daemon {
    std::function<Result<BufferId>(Gpu&, const GpuRange&, Deadline)> add;
    std::function<Status(BufferId, Deadline)> remove;  // and the plans that use it
  };
  explicit GpuBuffers(Daemon daemon) : daemon_(std::move(daemon)) {}

  // What the daemon calls the allocation around [address, +bytes); registers it where need be.
  Result<GpuBuffer> find(Gpu& gpu, const void* address, std::uint64_t bytes, Deadline deadline);
  // An allocation that the daemon knows without having been told.
  Status add_known(const GpuBuffer& buffer, Deadline deadline);
  // NotFound where [address] lies in no registered allocation.
  Status forget(const void* address, Deadline deadline);

 private:
  using Table = std::map<std::uintptr_t, GpuBuffer>;  // by base

  Status forget_freed(Gpu& gpu, const GpuRange& taken, Deadline deadline);

  const Daemon daemon_;
  DeadlineMutex mutex_;
  Table buffers_;
};

}  // namespace arcomm::client
