#include "transport/peer/host_shm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace arcomm {

Result<PeerMapping> PeerMapping::map(int fd, std::uint64_t offset_bytes,
                                     std::uint64_t length_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "the memory's descriptor is not a memfd (", std::strerror(errno),
                 "): allocate it with memfd_create(MFD_ALLOW_SEALING) or through arcommd");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return error(
        ErrorCode::InvalidArgument, Reason::BadValue,
        "the memory can still be cut off under a reader: seal the memfd with F_SEAL_SHRINK "
        "before registering it");
  }
  if ((seals & F_SEAL_WRITE) != 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "the memory is sealed against writing: results could not be stored");
  }
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "the memory's descriptor is not open for reading and writing");
  }
  struct stat file {};
  if (::fstat(fd, &file) != 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "the memory's descriptor has no size: ", std::strerror(errno));
  }
  // After the seal was seen the size can only grow.
  const auto size = static_cast<std::uint64_t>(file.st_size);
  if (length_bytes == 0 || offset_bytes > size || length_bytes > size - offset_bytes) {
    return error(ErrorCode::OutOfRange, Reason::OutOfBounds, "bytes ", offset_bytes, " + ",
                 length_bytes, " are not inside the memory's ", size, " bytes");
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t lead = offset_bytes % page;
  const std::size_t mapped_bytes = lead + length_bytes;
  void* base = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                      static_cast<off_t>(offset_bytes - lead));
  if (base == MAP_FAILED) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot map ", length_bytes,
                 " bytes of a peer's memory: ", std::strerror(errno),
                 "; raise vm.max_map_count or the service's memory limit");
  }
  return PeerMapping(base, mapped_bytes, {static_cast<std::byte*>(base) + lead, length_bytes});
}

PeerMapping::~PeerMapping() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

}  // namespace arcomm
