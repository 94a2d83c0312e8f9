#include "transport/peer/host_shm.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace arcomm {

Status PeerMapping::check(int fd, std::uint64_t offset_bytes, std::uint64_t length_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "the memory's descriptor is not a memfd (", std::strerror(errno),
                 "): allocate it with memfd_create(MFD_ALLOW_SEALING) or through arcommd");
  }
  // Huge pages come from a pool that may run dry under a reader, which is then killed, and they
  // cannot be unmapped in parts. (The block size tells nothing: tmpfs gives that of a huge page
  // where it may use them, without these faults.)
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "the memory does not lie in tmpfs (file system type ",
                 static_cast<std::uint64_t>(system.f_type),
                 "): huge pages of hugetlbfs cannot be shared; make the memfd without MFD_HUGETLB");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return error(
        ErrorCode::FailedPrecondition, Reason::Unsupported,
        "the memory can still be cut off under a reader: seal the memfd with F_SEAL_SHRINK "
        "before registering it");
  }
  if ((seals & F_SEAL_WRITE) != 0) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "the memory is sealed against writing: results could not be stored");
  }
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "the memory's descriptor is not open for reading and writing");
  }
  struct stat file {};
  if (::fstat(fd, &file) != 0) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "the memory's descriptor has no size: ", std::strerror(errno));
  }
  // After the seal was seen the size can only grow.
  const auto size = static_cast<std::uint64_t>(file.st_size);
  if (length_bytes == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "a range of 0 bytes was asked for; ask for 1 or more");
  }
  if (offset_bytes > size || length_bytes > size - offset_bytes) {
    return error(ErrorCode::OutOfRange, Reason::OutOfBounds, "bytes ", offset_bytes, " + ",
                 length_bytes, " are not inside the memory's ", size, " bytes");
  }
  return {};
}

Result<PeerMapping> PeerMapping::map(int fd, std::uint64_t offset_bytes,
                                     std::uint64_t length_bytes) {
  ARC_RETURN_IF_ERROR(check(fd, offset_bytes, length_bytes));
  Result<SharedMapping> mapping = SharedMapping::map(
      fd, {.offset_bytes = offset_bytes, .length_bytes = length_bytes, .what = "a peer's memory"});
  if (!mapping) return std::move(mapping).error();
  return PeerMapping(std::move(*mapping));
}

}  // namespace arcomm
