#include "transport/device/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace arcomm {
namespace {

constexpr std::uint64_t kReserveBytes = std::uint64_t{64} << 20;  // left to everybody else

Error out_of_memory(const char* what, std::uint64_t bytes, int cause) {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, what, " for ", bytes,
               " bytes of shared memory: ", std::strerror(cause),
               "; free memory or raise the limits of the service (memory, open files)");
}

// What the machine could give without killing anybody; all its memory where it does not tell.
std::uint64_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    return std::strtoull(line.c_str() + std::strlen("MemAvailable:"), nullptr, 10) * 1024;
  }
  return static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 1L)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
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
  // A memfd has no limit of its own: the kernel would rather kill processes than refuse the pages
  // below.
  if (const std::uint64_t available = available_bytes();
      whole > available || available - whole < kReserveBytes) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot allocate ", whole,
                 " bytes: the machine has ", available,
                 " bytes available; free memory or ask for less");
  }
  UniqueFd fd(::memfd_create("arcomm-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return out_of_memory("memfd_create", whole, errno);
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
