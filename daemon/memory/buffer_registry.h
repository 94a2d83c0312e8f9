// The memory that sessions may name in their requests: ids, where each buffer is mapped here, who
// owns it and how many operations and plans use it right now. Thread: the worker's. Ownership: the
// registry owns mappings and GPU memory until the buffer is removed, which is refused while it is
// in use. Host memory then goes to the unmapper; a GPU's is handed back, since it may be let go
// only while no resident kernel runs there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/memory/id_table.h"
#include "daemon/memory/unmapper.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"
#include "transport/device/memory.h"
#include "transport/peer/host_shm.h"

namespace arcomm {

inline constexpr int kNoGpu = -1;

struct Buffer {
  SessionId owner;
  PeerMapping mapping;      // host memory
  Memory memory;            // or a GPU's: allocated by the worker or imported
  int gpu = kNoGpu;         // its ordinal
  std::uint32_t users = 0;  // operations in flight and plans

  bool on_gpu() const { return gpu != kNoGpu; }
  MemoryRef view() const { return on_gpu() ? memory.view() : mapping.view(); }
  std::byte* base() const { return view().data; }  // as its own GPU finds it
  // For what runs on the GPU `ordinal`, which is not always the same address: Memory::data_on.
  std::byte* base_on(int ordinal) const { return on_gpu() ? memory.data_on(ordinal) : base(); }
  std::uint64_t length_bytes() const { return view().bytes; }
};

// What is left of a removed buffer. Of host memory: nothing.
struct RemovedBuffer {
  Memory memory;
  int gpu = kNoGpu;
};

class BufferRegistry {
 public:
  // `memory` must be sealed against shrinking and hold the range: a client cannot make us fault.
  // Mapped, then closed.
  Result<BufferId> add(SessionId owner, UniqueFd memory, std::uint64_t offset_bytes,
                       std::uint64_t length_bytes);
  // What nobody may add any more: closed elsewhere, since its last reference may be this one.
  void let_go(UniqueFd memory) { unmapper_.give(std::move(memory)); }
  // GPU memory: what Device::allocate or Device::import gave, on the GPU with the ordinal `gpu`.
  BufferId add(SessionId owner, Memory memory, int gpu);
  // Null unless `id` is live and belongs to `owner`.
  Buffer* find(SessionId owner, BufferId id) const;
  Result<RemovedBuffer> remove(SessionId owner, BufferId id);

  void hold(BufferId id) { ++buffers_.find(id)->users; }
  void drop(BufferId id) { --buffers_.find(id)->users; }
  // The end: GPU memory that something still uses is never let go. The driver takes it back when
  // the process ends; until then letting go of it could wait for a GPU that hangs.
  void leave_used();

  std::size_t size() const { return buffers_.size(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Unmapper unmapper_;
  IdTable<Buffer, BufferId> buffers_;
  std::uint64_t bytes_ = 0;
};

}  // namespace arcomm
