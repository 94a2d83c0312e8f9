// Memory that is mapped in chunks, as PyTorch's expandable segments are: a buffer may lie on many
// of them, and a chunk may make way for another under the same addresses. The daemon is told of the
// run of chunks that a buffer touches; runs may overlap. Every find() asks CUDA, chunk by chunk,
// whether what was registered is still what is mapped there: the references that are held make the
// answer exact, and keep no memory that the daemon's own mapping would not keep.
// Thread: the owner's lock. Ownership: the table; a run is given back when some of its chunks are
// gone and no plan needs the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/cuda/gpu.h"
#include "client/src/gpu/memory/gpu_buffer.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

using GpuChunks = std::vector<std::unique_ptr<GpuChunk>>;  // one behind the other

class GpuSegments {
 public:
  struct Daemon {
    std::function<Result<BufferId>(Gpu&, const GpuChunks&, Deadline)> add;
    // And the plans that use it. False, and nothing is removed, where something would be lost with
    // them: one that lies on memory which is there is under way, in a graph or held.
    std::function<Result<bool>(BufferId, const IsThere&, Deadline)> remove_if_unneeded;
  };
  explicit GpuSegments(Daemon daemon) : daemon_(std::move(daemon)) {}

  // The first that was registered of the runs that hold [address, +bytes) and are still mapped
  // there: the same one for as long as it is.
  std::optional<GpuBuffer> find(Gpu& gpu, const void* address, std::uint64_t bytes);
  // OutOfBounds where the range is not mapped to its end; OutOfRange (Unsupported) beyond
  // kMostChunks; Quota beyond the daemon's when all that no plan needs has been given back.
  Result<GpuBuffer> add(Gpu& gpu, const void* address, std::uint64_t bytes, Deadline deadline);
  // What can be given back of memory that is no longer mapped where it was, on this GPU.
  void forget_unmapped(Gpu& gpu, Deadline deadline);
  // Every run around `address`; the number of them. FailedPrecondition where a plan needs one.
  Result<std::size_t> forget(const void* address, Deadline deadline);

 private:
  struct Run {
    GpuBuffer buffer;
    GpuChunks chunks;
  };
  // The oldest that no plan needs; false: there is none.
  bool forget_oldest(Deadline deadline);
  Result<GpuChunks> hold(Gpu& gpu, const void* address, std::uint64_t bytes) const;

  const Daemon daemon_;
  std::vector<Run> runs_;  // the oldest first
};

}  // namespace arcomm::client
