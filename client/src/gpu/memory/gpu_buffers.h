// The allocations of GPU memory that the daemon knows in one session. A pointer finds its
// allocation by asking CUDA, so that every pointer inside works. Base and identity are the key: an
// allocation that was freed is given back to the daemon when its place is taken, or at the latest
// when another one is registered. Memory that is mapped in chunks has a table of its own
// (gpu_segments.h), but for what arcMemAlloc gave out, which stays what it is until arcMemFree.
// Thread: any. The daemon is asked under the lock; the lock's wait ends at the call's deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "client/cuda/gpu.h"
#include "client/src/gpu/memory/gpu_buffer.h"
#include "client/src/gpu/memory/gpu_segments.h"
#include "client/src/session/deadline.h"
#include "client/src/session/deadline_mutex.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

class GpuBuffers {
 public:
  struct Daemon {
    std::function<Result<BufferId>(Gpu&, const GpuRange&, Deadline)> add;
    std::function<Status(BufferId, Deadline)> remove;  // and the plans that use it
  };
  GpuBuffers(Daemon daemon, GpuSegments::Daemon of_chunks)
      : daemon_(std::move(daemon)), segments_(std::move(of_chunks)) {}

  // What the daemon calls the allocation, or the chunks, around [address, +bytes); registers them
  // where need be.
  Result<GpuBuffer> find(Gpu& gpu, const void* address, std::uint64_t bytes, Deadline deadline);
  // An allocation that the daemon knows without having been told.
  Status add_known(const GpuBuffer& buffer, Deadline deadline);
  // NotFound where [address] lies in no registered allocation; of chunks see GpuSegments::forget.
  Status forget(const void* address, Deadline deadline);

 private:
  using Table = std::map<std::uintptr_t, GpuBuffer>;  // by base

  Status forget_freed(Gpu& gpu, const GpuRange& taken, Deadline deadline);

  const Daemon daemon_;
  DeadlineMutex mutex_;
  Table buffers_;
  GpuSegments segments_;
};

}  // namespace arcomm::client
