// Memory of the host device: a memfd of fixed size, mapped, with all its pages there. Threads: see
// memory.h.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "proto/shared_mapping.h"
#include "transport/device/memory.h"

namespace arcomm {

class HostMemory final : public Memory::Backing {
 public:
  // Whole pages. Sealed against shrinking, growing and unsealing, so that no holder of the
  // descriptor can make another fault; written through once by the kernel (fallocate), so that a
  // later access cannot fail for lack of memory.
  static Result<std::unique_ptr<HostMemory>> create(std::uint64_t bytes);

  MemoryRef view() const override { return {mapping_.data(), mapping_.bytes()}; }
  Result<UniqueFd> export_fd() const override;

 private:
  HostMemory(UniqueFd fd, SharedMapping mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  UniqueFd fd_;
  SharedMapping mapping_;
};

}  // namespace arcomm
