#include "transport/device/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "transport/device/memory_groups.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kReserveBytes = std::uint64_t{64} << 20;  // left to everything else
constexpr std::uint64_t kMaxFileBytes =
    static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());

Error allocation_failed(std::uint64_t bytes, const char* step, int why) {
  const char* next = why == EMFILE || why == ENFILE
                         ? "; raise LimitNOFILE= of the service"
                         : "; free memory or raise the memory limit of the service";
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot allocate ", bytes,
               " bytes of shared memory: ", step, ": ", std::strerror(why), next);
}

std::uint64_t available_on_machine() {
  std::ifstream info("/proc/meminfo");
  std::string word;
  while (info >> word) {
    std::uint64_t kib = 0;
    if (word == "MemAvailable:" && info >> kib) return kib * 1024;
  }
  return static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 1L)) * page_bytes();
}

std::uint64_t available_bytes() {
  std::uint64_t available = available_on_machine();
  for (const MemoryGroup& group : read_memory_groups())
    available =
        std::min(available, group.most_bytes - std::min(group.most_bytes, group.used_bytes));
  return available;
}

}  // namespace

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::uint64_t available_memory_bytes() {
  const std::uint64_t available = available_bytes();
  return available - std::min(available, kReserveBytes);
}

std::uint64_t most_memory_bytes() {
  auto most = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 1L)) * page_bytes();
  for (const MemoryGroup& group : read_memory_groups()) most = std::min(most, group.most_bytes);
  return most;
}

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

Status check_available(std::uint64_t bytes, std::uint64_t promised) {
  if (bytes == 0) return {};
  const std::uint64_t available = available_bytes();
  const std::uint64_t kept = kReserveBytes + std::min(promised, kUnlimited - kReserveBytes);
  if (available >= kept && bytes <= available - kept) return {};
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot take ", bytes,
               " bytes of shared memory: ", available, " are available to the service and ", kept,
               " are kept free or promised to others; free memory or ask for less");
}

Result<SealedMemory> make_sealed_memory(const char* name, std::uint64_t bytes) {
  Result<GrowingMemory> memory = GrowingMemory::begin(name, bytes, 0);
  if (!memory) return std::move(memory).error();
  ARC_RETURN_IF_ERROR(memory->grow(memory->missing()));
  return std::move(*memory).take();
}

Result<GrowingMemory> GrowingMemory::begin(const char* name, std::uint64_t bytes,
                                           std::uint64_t promised) {
  Result<std::uint64_t> whole = round_to_pages(bytes);
  if (!whole) return std::move(whole).error();
  ARC_RETURN_IF_ERROR(check_available(*whole, promised));
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return allocation_failed(*whole, "memfd_create", errno);
  // So that a size which is not allowed is refused before a page is touched.
  if (::ftruncate(fd.get(), static_cast<off_t>(*whole)) != 0)
    return allocation_failed(*whole, "ftruncate", errno);
  return GrowingMemory({std::move(fd), *whole});
}

Status GrowingMemory::grow(std::uint64_t most) {
  const int fd = memory_.fd.get();
  const std::uint64_t slice = std::min(most, missing());
  while (::fallocate(fd, 0, static_cast<off_t>(touched_), static_cast<off_t>(slice)) != 0) {
    if (errno != EINTR) return allocation_failed(memory_.bytes, "fallocate", errno);
  }
  touched_ += slice;
  if (missing() == 0 && ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return allocation_failed(memory_.bytes, "sealing", errno);
  }
  return {};
}

}  // namespace arcomm
