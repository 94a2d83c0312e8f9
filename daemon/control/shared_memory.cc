#include "daemon/control/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

namespace arcomm {
namespace {

constexpr std::uint64_t kMaxFileBytes =
    static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

Error allocation_failed(std::uint64_t bytes, int why) {
  const char* next = why == EMFILE || why == ENFILE
                         ? ": raise LimitNOFILE= of the service"
                         : ": free memory or raise the limit of the daemon's cgroup";
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot allocate ", bytes,
               " bytes of shared memory: ", std::strerror(why), next);
}

}  // namespace

Result<std::uint64_t> round_to_pages(std::uint64_t bytes) {
  const std::uint64_t mask = page_bytes() - 1;
  if (bytes == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "a buffer of 0 bytes was asked for; ask for 1 or more");
  }
  if (bytes > kMaxFileBytes - mask) {
    return error(ErrorCode::OutOfRange, Reason::BadValue, "a buffer of ", bytes,
                 " bytes is more than a file can hold");
  }
  return (bytes + mask) & ~mask;
}

Result<SharedMemory> make_shared_memory(std::uint64_t bytes) {
  Result<std::uint64_t> length = round_to_pages(bytes);
  if (!length) return std::move(length).error();
  UniqueFd fd(::memfd_create("arcomm-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return allocation_failed(*length, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(*length)) != 0)
    return allocation_failed(*length, errno);
  if (const int why = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(*length)); why != 0) {
    return allocation_failed(*length, why);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return allocation_failed(*length, errno);
  }
  return SharedMemory{std::move(fd), *length};
}

Status check_offered_memory(int fd, std::uint64_t offset_bytes, std::uint64_t length_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "the offered memory can shrink under the daemon: only a memfd sealed with "
                 "F_SEAL_SHRINK is shared");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "cannot look at the offered memory: ", std::strerror(errno));
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (length_bytes == 0 || offset_bytes > size || length_bytes > size - offset_bytes) {
    return error(ErrorCode::InvalidArgument, Reason::OutOfBounds, "the range of ", length_bytes,
                 " bytes at ", offset_bytes, " is empty or leaves the offered memory of ", size,
                 " bytes");
  }
  if (offset_bytes % page_bytes() != 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the offset ", offset_bytes,
                 " is not a multiple of the page of ", page_bytes(), " bytes");
  }
  return {};
}

}  // namespace arcomm
