#include "daemon/control/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace arcomm {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kReserveBytes = 64ull << 20;  // left to everything else on the machine
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

std::uint64_t number_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    std::uint64_t value = 0;
    if ((key.empty() &&
         std::from_chars(word.data(), word.data() + word.size(), value).ec == std::errc{}) ||
        (!key.empty() && word == key && file >> value)) {
      return value;
    }
    if (key.empty()) break;  // "max"
  }
  return kUnlimited;
}

// What may still be taken before the kernel begins to kill: the machine's, or the control group's
// if that is less.
std::uint64_t available_bytes() {
  std::uint64_t available = number_in("/proc/meminfo", "MemAvailable:");
  if (available != kUnlimited) available *= 1024;
  std::ifstream group_file("/proc/self/cgroup");
  std::string line;
  while (std::getline(group_file, line)) {
    if (!line.starts_with("0::")) continue;  // version 2's line
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    const std::uint64_t most = number_in(folder + "/memory.max", "");
    const std::uint64_t used = number_in(folder + "/memory.current", "");
    if (most != kUnlimited && used != kUnlimited)
      available = std::min(available, most - std::min(most, used));
  }
  return available;
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
  // A memfd may be larger than memory: touching its pages would end in the kernel's killer and not
  // in an error.
  if (const std::uint64_t available = available_bytes();
      available < kReserveBytes || *length > available - kReserveBytes) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot allocate ", *length,
                 " bytes of shared memory: ", available, " are available to the daemon and ",
                 kReserveBytes, " are kept free");
  }
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
