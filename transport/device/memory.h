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
  std::byte* data =
      nullptr;  // valid for its device (see Memory::data_on); of a GPU not for the CPU
  std::uint64_t bytes = 0;
};

class Memory {
 public:
  // What a kind of device keeps for one allocation; its destructor gives the memory back.
  class Backing {
   public:
    virtual ~Backing() = default;
    virtual MemoryRef view() const = 0;
    // Where device `ordinal` finds the same bytes. One address for all, but for memory that came
    // by a CUDA IPC handle: that is mapped for each GPU by itself, and the address that one of
    // them has is an illegal access on another, peer access or not.
    virtual std::byte* data_on(int ordinal) const {
      static_cast<void>(ordinal);
      return view().data;
    }
    // A descriptor of its own for the whole allocation, to be sent to another process by
    // SCM_RIGHTS.
    virtual Result<UniqueFd> export_fd() const = 0;
    // See Memory::grow.
    virtual Status grow(std::uint64_t bytes) {
      return error(ErrorCode::Unimplemented, Reason::Unsupported, view().bytes,
                   " bytes of memory cannot grow to ", bytes,
                   ": no addresses were reserved behind them");
    }
    virtual void cut_back() {}  // see Memory::cut_back

   private:
    friend class Memory;
    std::shared_ptr<const void> token_;  // the base's: it goes after what is derived from it
  };

  Memory() = default;
  explicit Memory(std::unique_ptr<Backing> backing) : backing_(std::move(backing)) {}

  explicit operator bool() const { return backing_ != nullptr; }
  // Preconditions of the rest: not empty.
  MemoryRef view() const { return backing_->view(); }
  std::byte* data() const { return view().data; }
  std::uint64_t bytes() const { return view().bytes; }
  // For kernels and copies that run on the device `ordinal`; null where it has no access.
  std::byte* data_on(int ordinal) const { return backing_->data_on(ordinal); }
  Result<UniqueFd> export_fd() const { return backing_->export_fd(); }
  // Of Device::allocate_growing(): `bytes` in all, rounded up; what is there stays where it is, and
  // what is added is not zeroed, and no part of export_fd(). After an error it is as it was. As
  // slow as an allocation, and not while a kernel of ours is resident on the device.
  Status grow(std::uint64_t bytes) { return backing_->grow(bytes); }
  // Gives back all that grow() added: nothing uses it. As slow as freeing.
  void cut_back() { backing_->cut_back(); }
  // Goes right after the memory has, wherever that is moved and whoever lets go of it at last.
  void keep(std::shared_ptr<const void> token) { backing_->token_ = std::move(token); }

 private:
  std::unique_ptr<Backing> backing_;
};

}  // namespace arcomm
