#include "daemon/memory/buffer_registry.h"

#include <memory>
#include <utility>
#include <vector>

namespace arcomm {

Result<BufferId> BufferRegistry::add(SessionId owner, UniqueFd memory, std::uint64_t offset_bytes,
                                     std::uint64_t length_bytes) {
  Result<PeerMapping> mapping = PeerMapping::map(memory.get(), offset_bytes, length_bytes);
  if (!mapping) {
    unmapper_.give(std::move(memory));  // its owner may have closed its own meanwhile
    return std::move(mapping).error();
  }
  bytes_ += length_bytes;
  auto buffer = std::make_unique<Buffer>();
  buffer->owner = owner;
  buffer->mapping = std::move(mapping).value();
  return buffers_.insert(std::move(buffer));
}

BufferId BufferRegistry::add(SessionId owner, Memory memory, int gpu) {
  auto buffer = std::make_unique<Buffer>();
  buffer->owner = owner;
  buffer->memory = std::move(memory);
  buffer->gpu = gpu;
  bytes_ += buffer->length_bytes();
  return buffers_.insert(std::move(buffer));
}

Buffer* BufferRegistry::find(SessionId owner, BufferId id) const {
  Buffer* buffer = buffers_.find(id);
  return buffer != nullptr && buffer->owner == owner ? buffer : nullptr;
}

Result<RemovedBuffer> BufferRegistry::remove(SessionId owner, BufferId id) {
  const Buffer* buffer = find(owner, id);
  if (buffer == nullptr) {
    return error(ErrorCode::NotFound, Reason::UnknownHandle, "buffer ", id,
                 " is unknown, released or of another session");
  }
  if (buffer->users != 0) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue, "buffer ", id, " is used by ",
                 buffer->users, " operations or plans: wait for them, or destroy the plan, first");
  }
  bytes_ -= buffer->length_bytes();
  const std::unique_ptr<Buffer> removed = buffers_.erase(id);
  if (removed->on_gpu()) return RemovedBuffer{std::move(removed->memory), removed->gpu};
  unmapper_.give(std::move(removed->mapping));
  return RemovedBuffer{};
}

void BufferRegistry::leave_used() {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory the daemon ends here too
  static auto* const kept = new std::vector<Memory>();
  buffers_.for_each([](BufferId, Buffer& buffer) {
    if (buffer.on_gpu() && buffer.users != 0) kept->push_back(std::move(buffer.memory));
  });
}

}  // namespace arcomm
