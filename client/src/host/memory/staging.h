// Daemon-allocated memory through which all other memory is copied. Slots come in powers of two,
// are allocated when first needed and kept for the session's life. Thread: any. Ownership: the pool
// owns the slots and their mappings; an operation borrows up to two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/src/session/deadline.h"
#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

class FdChannel;
class NodeControl;
struct SessionKey;

struct StagingSlot {
  SharedMapping mapping;
  std::byte* memory;
  std::size_t bytes;
  BufferId buffer;
  StagingSlot(SharedMapping mapped, BufferId id)
      : mapping(std::move(mapped)), memory(mapping.data()), bytes(mapping.bytes()), buffer(id) {}
};

class StagingPool {
 public:
  // All three outlive the pool.
  StagingPool(NodeControl& control, FdChannel& descriptors, const SessionKey& key)
      : control_(control), descriptors_(descriptors), key_(key) {}

  // At least `bytes` of memory; asks the daemon for more when no slot of the size is free.
  Result<StagingSlot*> acquire(std::size_t bytes, Deadline deadline);
  // Only what is free already.
  StagingSlot* acquire_free(std::size_t bytes);
  void release(StagingSlot* slot);
  // Has a slot ready for memory that was announced.
  Status warm_up(std::size_t bytes, Deadline deadline);

 private:
  Result<std::unique_ptr<StagingSlot>> allocate(std::size_t bytes, Deadline deadline);

  NodeControl& control_;
  FdChannel& descriptors_;
  const SessionKey& key_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<StagingSlot>> slots_;
  std::vector<StagingSlot*> free_;
};

}  // namespace arcomm::client
