// Memory of a fake GPU: of any size, and only as much of the machine's as has been touched. Thread:
// any one at a time.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "proto/shared_mapping.h"
#include "transport/device/memory.h"

namespace arcomm::test {

class SparseMemory final : public Memory::Backing {
 public:
  static Result<Memory> create(std::uint64_t bytes) {
    UniqueFd fd(::memfd_create("fake-gpu", MFD_CLOEXEC));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
      return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, std::strerror(errno));
    Result<SharedMapping> mapping = SharedMapping::map(fd.get(), {.length_bytes = bytes});
    if (!mapping) return std::move(mapping).error();
    return Memory(
        std::unique_ptr<SparseMemory>(new SparseMemory(std::move(fd), std::move(*mapping))));
  }

  MemoryRef view() const override { return {mapping_.data(), mapping_.bytes()}; }
  Result<UniqueFd> export_fd() const override {
    return UniqueFd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  }

 private:
  SparseMemory(UniqueFd fd, SharedMapping mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  UniqueFd fd_;
  SharedMapping mapping_;
};

}  // namespace arcomm::test
