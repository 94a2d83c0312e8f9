// Memory that operations may name: allocated by the daemon, shared by the caller, or merely
// announced.
//
// An address finds its buffer in one lookup. What the daemon calls the buffer belongs to a session;
// after a restart of the daemon a buffer is offered again by itself, at its next use, because both
// ends map the same sealed memfd.
// Thread: any. Ownership: the table holds buffers until they are freed; an operation in flight
// holds those it uses. A buffer's destructor unmaps allocated memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/src/host/memory/interval_map.h"
#include "client/src/session/deadline.h"
#include "client/src/session/deadline_mutex.h"
#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

class Session;

class Buffer {
 public:
  enum class Kind : std::uint8_t {
    Allocated,  // by the daemon, mapped by us
    Shared,     // the caller's mapping of a sealed memfd
    Announced,  // any other memory: copied through staging
  };

  struct Parts {
    Kind kind = Kind::Announced;
    std::byte* base = nullptr;        // what the daemon's offset 0 is
    std::size_t bytes = 0;            // from base
    UniqueFd memory;                  // Allocated, Shared
    std::uint64_t memory_offset = 0;  // of base in the memfd
    SharedMapping mapping{};          // Allocated. A new daemon is offered the same memory, so that
                                      // it keeps its address for as long as there is a Buffer
  };

  explicit Buffer(Parts parts) : parts_(std::move(parts)) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Kind kind() const { return parts_.kind; }
  // The daemon may be asked to use it where it is.
  bool is_shared() const {
    return parts_.kind != Kind::Announced && !in_doubt_.load(std::memory_order_relaxed);
  }
  std::byte* base() const { return parts_.base; }
  std::size_t bytes() const { return parts_.bytes; }
  std::uint64_t offset_of(const void* address) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - parts_.base);
  }

  // The daemon's name of this buffer in that session; offers the memory when it has none yet.
  Result<BufferId> id_in(Session& session, Deadline deadline);
  void named(const Session& session, BufferId id);
  // Tells the daemon, if it still knows the buffer. May be tried again after an error.
  Status release(Deadline deadline);

  void begin_use() { users_.fetch_add(1, std::memory_order_relaxed); }
  void end_use() { users_.fetch_sub(1, std::memory_order_release); }
  bool in_use() const { return users_.load(std::memory_order_acquire) > 0; }

 private:
  const Parts parts_;
  std::atomic<int> users_{0};             // operations in flight and plans
  std::atomic<std::uint64_t> serial_{0};  // of the session that id_ belongs to; written after it
  std::atomic<std::uint64_t> id_{0};
  // The daemon may or may not have heard of a release that failed, and the caller may not heed that
  // it did: whatever is at these addresses goes through staging memory from then on.
  std::atomic<bool> in_doubt_{false};
  DeadlineMutex mutex_;  // one offer at a time
};

using BufferTable = IntervalMap<Buffer>;
BufferTable& buffers();

Result<void*> allocate_memory(std::size_t bytes, Session& session, Deadline deadline);
Status free_memory(void* address, Deadline deadline);
Status register_memory(void* address, std::size_t bytes, Session& session, Deadline deadline);
Status deregister_memory(void* address, Deadline deadline);

}  // namespace arcomm::client
