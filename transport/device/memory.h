// Memory that a device can work on and that another process may map. Memory owns; MemoryRef is a
// view of a part. Move-only; used by any one thread at a time. Must be destroyed before its Device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

// Bytes inside some Memory (or PeerMapping), which outlives it.
struct MemoryRef {
  std::byte* data = nullptr;  // valid for this device; on a GPU not for the CPU
  std::uint64_t bytes = 0;
};

class Memory {
 public:
  // What a kind of device keeps for one allocation; its destructor gives the memory back.
  class Backing {
   public:
    virtual ~Backing() = default;
    virtual MemoryRef view() const = 0;
    // A descriptor of its own for the whole allocation, to be sent to another process by
    // SCM_RIGHTS.
    virtual Result<UniqueFd> export_fd() const = 0;
  };

  Memory() = default;
  explicit Memory(std::unique_ptr<Backing> backing) : backing_(std::move(backing)) {}

  explicit operator bool() const { return backing_ != nullptr; }
  // Preconditions of the rest: not empty.
  MemoryRef view() const { return backing_->view(); }
  std::byte* data() const { return view().data; }
  std::uint64_t bytes() const { return view().bytes; }
  Result<UniqueFd> export_fd() const { return backing_->export_fd(); }

 private:
  std::unique_ptr<Backing> backing_;
};

}  // namespace arcomm
