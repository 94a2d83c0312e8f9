// The memory that sessions may name in their requests: ids, where each buffer is mapped here, who
// owns it and how many operations and plans use it right now. Thread: the worker's. Ownership: the
// registry owns the mappings; one is given to the unmapper when its buffer is removed, which is
// refused while it is in use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/memory/id_table.h"
#include "daemon/memory/unmapper.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"
#include "transport/peer/host_shm.h"

namespace arcomm {

struct Buffer {
  SessionId owner;
  PeerMapping mapping;
  std::uint32_t users = 0;  // operations in flight and plans

  std::byte* base() const { return mapping.data(); }
  std::uint64_t length_bytes() const { return mapping.bytes(); }
};

class BufferRegistry {
 public:
  // `memory` must be sealed against shrinking and hold the range: a client cannot make us fault.
  // Mapped, then closed.
  Result<BufferId> add(SessionId owner, UniqueFd memory, std::uint64_t offset_bytes,
                       std::uint64_t length_bytes);
  // Null unless `id` is live and belongs to `owner`.
  Buffer* find(SessionId owner, BufferId id) const;
  Status remove(SessionId owner, BufferId id);

  void hold(BufferId id) { ++buffers_.find(id)->users; }
  void drop(BufferId id) { --buffers_.find(id)->users; }

  std::size_t size() const { return buffers_.size(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Unmapper unmapper_;
  IdTable<Buffer, BufferId> buffers_;
  std::uint64_t bytes_ = 0;
};

}  // namespace arcomm
