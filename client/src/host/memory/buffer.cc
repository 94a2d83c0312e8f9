#include "client/src/host/memory/buffer.h"

#include <utility>

#include "client/src/control/new_allocation.h"
#include "client/src/host/memory/callers_memfd.h"
#include "client/src/session/session.h"

namespace arcomm::client {
namespace {

std::uintptr_t number_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

Error busy(const void* address) {
  return error(
      ErrorCode::FailedPrecondition, Reason::BadValue, "the memory at ", address,
      " is used by an operation in flight or by a plan: wait for it, or destroy the plan, first");
}

// The daemon does not hold the buffer any more, or will not in a moment: it refuses calls for
// shutting down only when it is about to exit.
bool is_forgotten(const Error& why) {
  return is_gone(why) || why.reason == Reason::ShuttingDown;
}

// Ends a buffer that the caller named by its first byte.
Status drop(void* address, bool allocated, Deadline deadline) {
  const char* expected = allocated ? "arcMemAlloc" : "arcMemRegister";
  const std::shared_ptr<Buffer> buffer = buffers().starting_at(number_of(address));
  if (!buffer || (buffer->kind() == Buffer::Kind::Allocated) != allocated) {
    return error(ErrorCode::NotFound, Reason::UnknownHandle, address, " did not come from ",
                 expected, ", or was released already");
  }
  if (buffer->in_use()) return busy(address);
  ARC_RETURN_IF_ERROR(buffer->release(deadline));
  if (!buffers().erase(number_of(address))) {
    return error(ErrorCode::NotFound, Reason::UnknownHandle, address,
                 " was released by another thread");
  }
  return {};
}

}  // namespace

BufferTable& buffers() {
  static auto* table = new BufferTable;  // never destroyed: threads may outlive main
  return *table;
}

void Buffer::named(const Session& session, BufferId id) {
  id_.store(id.bits(), std::memory_order_relaxed);
  serial_.store(session.serial(), std::memory_order_release);
}

Result<BufferId> Buffer::id_in(Session& session, Deadline deadline) {
  if (serial_.load(std::memory_order_acquire) == session.serial()) {
    return BufferId::from_bits(id_.load(std::memory_order_relaxed));
  }
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("telling the daemon about this memory");
  if (serial_.load(std::memory_order_relaxed) == session.serial()) {
    return BufferId::from_bits(id_.load(std::memory_order_relaxed));
  }
  Result<std::uint64_t> offered = session.descriptors().offer(parts_.memory.get(), deadline);
  if (!offered) return std::move(offered).error();
  Result<SharedBuffer> shared = session.control().register_buffer(
      session.key(), *offered, parts_.memory_offset, parts_.bytes, deadline);
  if (!shared) return std::move(shared).error();
  named(session, shared->buffer);
  return shared->buffer;
}

Status Buffer::release(Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("telling the daemon about this memory");
  const std::shared_ptr<Session> session =
      Session::by_serial(serial_.load(std::memory_order_relaxed));
  if (!session || session->lost())
    return {};  // the daemon that knew it is gone, and its list with it
  const BufferId id = BufferId::from_bits(id_.load(std::memory_order_relaxed));
  Status released = session->control().release_buffer(session->key(), id, deadline);
  if (!released && !is_forgotten(released.error())) {
    if (released.error().code != ErrorCode::FailedPrecondition)  // it is used, and stays as it was
      in_doubt_.store(true, std::memory_order_relaxed);
    return released;
  }
  serial_.store(0, std::memory_order_release);
  return {};
}

Result<void*> allocate_memory(std::size_t bytes, Session& session, Deadline deadline) {
  Result<NewAllocation> made = NewAllocation::of(session.control(), session.descriptors(),
                                                 session.key(), bytes, {}, deadline);
  if (!made) return std::move(made).error();
  Result<SharedMapping> mapping =
      SharedMapping::map(made->memory(), {.length_bytes = made->bytes(), .is_prefaulted = true});
  if (!mapping) return std::move(mapping).error();
  std::byte* const base = mapping->data();
  auto buffer = std::make_shared<Buffer>(Buffer::Parts{.kind = Buffer::Kind::Allocated,
                                                       .base = base,
                                                       .bytes = made->bytes(),
                                                       .memory = made->take_memory(),
                                                       .mapping = std::move(*mapping)});
  buffer->named(session, made->id());
  if (!buffers().insert(number_of(base), buffer->bytes(), buffer)) {
    // Someone registered addresses and then unmapped them behind our back.
    return error(
        ErrorCode::FailedPrecondition, Reason::BadValue, "the new memory at ",
        static_cast<void*>(base),
        " lies inside a range that is still registered: deregister memory before unmapping it");
  }
  made->keep();
  return static_cast<void*>(base);
}

Status free_memory(void* address, Deadline deadline) {
  return drop(address, true, deadline);
}

Status register_memory(void* address, std::size_t bytes, Session& session, Deadline deadline) {
  Buffer::Parts parts;
  parts.base = static_cast<std::byte*>(address);
  parts.bytes = bytes;
  if (std::optional<CallersMemfd> found = find_callers_memfd(address, bytes)) {
    parts = {.kind = Buffer::Kind::Shared,
             .base = found->first_page,
             .bytes = found->bytes,
             .memory = std::move(found->memory),
             .memory_offset = found->offset};
  }
  auto buffer = std::make_shared<Buffer>(std::move(parts));
  if (!buffers().insert(number_of(address), bytes, buffer)) {
    return error(ErrorCode::AlreadyExists, Reason::BadValue, "[", address, ", +", bytes,
                 ") meets memory that is allocated or registered already");
  }
  Status ready;
  if (buffer->is_shared()) {
    if (Result<BufferId> id = buffer->id_in(session, deadline); !id) ready = std::move(id).error();
  } else {
    ready = session.staging().warm_up(bytes, deadline);
  }
  if (!ready) buffers().erase(number_of(address));
  return ready;
}

Status deregister_memory(void* address, Deadline deadline) {
  return drop(address, false, deadline);
}

}  // namespace arcomm::client
