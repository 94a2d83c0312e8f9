#include "daemon/exec/gpu/hardware/in_stream_image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace arcomm {
namespace {

Error cannot_lend(const char* what) {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, what,
               " for the kernels that clients launch: ", std::strerror(errno),
               "; raise the limits of the service (memory, open files), or turn gpu.in_stream off");
}

}  // namespace

Result<InStreamImage> InStreamImage::create(std::span<const std::byte> image) {
  if (image.empty()) return InStreamImage();
  UniqueFd fd(::memfd_create("arcomm-in-stream", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return cannot_lend("memfd_create");
  for (std::size_t written = 0; written < image.size();) {
    const ssize_t more = ::write(fd.get(), image.data() + written, image.size() - written);
    if (more <= 0) return cannot_lend("write");
    written += static_cast<std::size_t>(more);
  }
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
