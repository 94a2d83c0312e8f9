#include "daemon/exec/gpu/hardware/in_stream_image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace arcomm {
namespace {

Error cannot_lend(const char* what) {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, what,
               " for the kernels that clients launch: ", std::strerror(errno),
               "; raise the limits of the service (memory, open files), or turn gpu.in_stream off");
}

Status write_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  for (std::size_t written = 0; written < bytes.size();) {
    const ssize_t more = ::pwrite(fd, bytes.data() + written, bytes.size() - written,
                                  static_cast<off_t>(offset + written));
    if (more <= 0) return cannot_lend("write");
    written += static_cast<std::size_t>(more);
  }
  return {};
}

}  // namespace

Result<InStreamImage> InStreamImage::create(const InStreamImages& images) {
  if (images[static_cast<std::size_t>(Codec::None)].empty()) return InStreamImage();
  UniqueFd fd(::memfd_create("arcomm-in-stream", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return cannot_lend("memfd_create");
  const InStreamDirectory directory = InStreamDirectory::of(images);
  ARC_RETURN_IF_ERROR(write_at(fd.get(), 0, std::as_bytes(std::span(&directory, 1))));
  for (std::size_t codec = 0; codec < kCodecs; ++codec)
    ARC_RETURN_IF_ERROR(write_at(fd.get(), directory.images[codec].offset, images[codec]));
  // Every client runs what is in there: not one of them may write it.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return cannot_lend("sealing memory");
  return InStreamImage(std::move(fd));
}

Result<UniqueFd> InStreamImage::export_fd() const {
  UniqueFd copy = duplicate(fd_.get());
  if (!copy) return cannot_lend("a second descriptor");
  return copy;
}

}  // namespace arcomm
