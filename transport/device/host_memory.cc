#include "transport/device/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

namespace arcomm {
namespace {

Error out_of_memory(const char* what, std::uint64_t bytes, int cause) {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, what, " for ", bytes,
               " bytes of shared memory: ", std::strerror(cause),
               "; free memory or raise the limits of the service (memory, open files)");
}

}  // namespace

Result<std::unique_ptr<HostMemory>> HostMemory::create(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto largest = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) - page;
  if (bytes == 0 || bytes > largest) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot allocate ", bytes,
                 " bytes: allowed are 1 to ", largest);
  }
  const std::uint64_t whole = (bytes + page - 1) / page * page;
  UniqueFd fd(::memfd_create("arcomm-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return out_of_memory("memfd_create", whole, errno);
  // posix_fallocate would come back to a program as a return value, fallocate as errno; both
  // allocate zeroed pages.
  while (::fallocate(fd.get(), 0, 0, static_cast<off_t>(whole)) != 0) {
    if (errno != EINTR) return out_of_memory("fallocate", whole, errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return out_of_memory("sealing", whole, errno);
  }
  void* base =
      ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (base == MAP_FAILED) return out_of_memory("mmap", whole, errno);
  return std::unique_ptr<HostMemory>(
      new HostMemory(std::move(fd), {static_cast<std::byte*>(base), whole}));
}

HostMemory::~HostMemory() {
  ::munmap(view_.data, view_.bytes);
}

Result<UniqueFd> HostMemory::export_fd() const {
  UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return out_of_memory("a second descriptor", view_.bytes, errno);
  return copy;
}

}  // namespace arcomm
