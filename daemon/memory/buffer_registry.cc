#include "daemon/memory/buffer_registry.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace arcomm {
namespace {

constexpr std::uint64_t kPage = 4096;

Status check_memory(int fd, std::uint64_t offset, std::uint64_t length) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "the memory is not a memfd sealed with F_SEAL_SHRINK: its owner could cut it off under an operation");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot stat the memory: ", std::strerror(errno));
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (length == 0 || offset > size || length > size - offset) {
    return error(ErrorCode::InvalidArgument, Reason::OutOfBounds, "the range of ", length, " bytes at ", offset,
                 " leaves the memory of ", size, " bytes");
  }
  return {};
}

}  // namespace

Buffer::~Buffer() { ::munmap(mapping_, mapped_bytes_); }

Result<BufferId> BufferRegistry::add(SessionId owner, UniqueFd memory, std::uint64_t offset_bytes,
                                     std::uint64_t length_bytes) {
  ARC_RETURN_IF_ERROR(check_memory(memory.get(), offset_bytes, length_bytes));
  const std::uint64_t skipped = offset_bytes % kPage;
  const std::uint64_t mapped = skipped + length_bytes;
  void* mapping = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(),
                         static_cast<off_t>(offset_bytes - skipped));
  if (mapping == MAP_FAILED) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot map a buffer of ", length_bytes,
                 " bytes: ", std::strerror(errno));
  }
  ::madvise(mapping, mapped, MADV_DONTFORK);
  bytes_ += length_bytes;
  return buffers_.insert(std::make_unique<Buffer>(owner, mapping, mapped, skipped, length_bytes));
}

Buffer* BufferRegistry::find(SessionId owner, BufferId id) const {
  Buffer* buffer = buffers_.find(id);
  return buffer != nullptr && buffer->owner == owner ? buffer : nullptr;
}

Status BufferRegistry::remove(SessionId owner, BufferId id) {
  const Buffer* buffer = find(owner, id);
  if (buffer == nullptr) {
    return error(ErrorCode::NotFound, Reason::UnknownHandle, "buffer ", id, " is unknown, released or of another session");
  }
  if (buffer->users != 0) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue, "buffer ", id, " is used by ", buffer->users,
                 " operations or plans: wait for them, or destroy the plan, first");
  }
  bytes_ -= buffer->length_bytes;
  buffers_.erase(id);
  return {};
}

}  // namespace arcomm
