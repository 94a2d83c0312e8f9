#include "daemon/control/descriptors/shared_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/peer/host_shm.h"

namespace arcomm {

Status check_offered_memory(int fd, std::uint64_t offset_bytes, std::uint64_t length_bytes) {
  ARC_RETURN_IF_ERROR(PeerMapping::check(fd, offset_bytes, length_bytes));
  if (offset_bytes % page_bytes() != 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the offset ", offset_bytes,
                 " is not a multiple of the page of ", page_bytes(), " bytes");
  }
  return {};
}

Result<MissingPages> check_missing_pages(int fd, std::uint64_t length_bytes,
                                         std::uint64_t promised) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "cannot look at the offered memory: ", std::strerror(errno));
  }
  // Of the file's pages, as many as can lie outside of the range are taken to lie there.
  const auto present = static_cast<std::uint64_t>(info.st_blocks) * 512;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  const std::uint64_t outside = size - std::min(size, length_bytes);
  const std::uint64_t inside = present - std::min(present, outside);
  const std::uint64_t missing = length_bytes - std::min(length_bytes, inside);
  ARC_RETURN_IF_ERROR(check_available(missing, promised));
  return MissingPages{.bytes = missing, .available_bytes = available_memory_bytes()};
}

}  // namespace arcomm
