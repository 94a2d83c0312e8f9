#include "proto/host/in_call.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace arcomm {

Result<UniqueFd> create_in_call_memory(const InCallLayout& layout) {
  const auto bytes = static_cast<off_t>(layout.bytes());
  UniqueFd fd(::memfd_create("arcomm-in-call", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // posix_fallocate takes the pages now, so that a later touch cannot fault for lack of memory.
  if (!fd || ::ftruncate(fd.get(), bytes) != 0 || ::posix_fallocate(fd.get(), 0, bytes) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot create ", bytes,
                 " bytes for calls to meet in: ", std::strerror(errno));
  }
  return fd;
}

Result<SharedMapping> map_in_call_memory(int fd, std::uint64_t bytes) {
  return SharedMapping::map(fd, {.length_bytes = bytes,
                                 .is_prefaulted = true,
                                 .is_inherited = false,  // a forked child is no rank
                                 .what = "memory for calls to meet in"});
}

}  // namespace arcomm
