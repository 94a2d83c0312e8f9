// Memory of another process on this node, mapped here: a sealed memfd that arrived by SCM_RIGHTS.
// Move-only owner of its mapping; any one thread at a time. The mapping outlives the process that
// made the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "proto/status.h"
#include "transport/device/memory.h"

namespace arcomm {

class PeerMapping {
 public:
  // Whether the range may be mapped; the one rule for memory that a stranger offers. What is wrong
  // with the memory is FailedPrecondition/Unsupported: made or sealed otherwise it would serve.
  // What is wrong with the range is InvalidArgument (empty) or OutOfRange.
  static Status check(int fd, std::uint64_t offset_bytes, std::uint64_t length_bytes);
  // Maps [offset_bytes, offset_bytes + length_bytes) for reading and writing. The descriptor stays
  // the caller's and may be closed afterwards. Trusts nothing about it: checked as by check(),
  // which refuses it unless it lies in tmpfs, is sealed against shrinking (a mapping past the end
  // of a file would kill this process), holds the range, and is open for writing.
  static Result<PeerMapping> map(int fd, std::uint64_t offset_bytes, std::uint64_t length_bytes);

  PeerMapping() = default;
  PeerMapping(PeerMapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
        view_(std::exchange(other.view_, {})) {}
  PeerMapping& operator=(PeerMapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(view_, other.view_);
    return *this;
  }
  PeerMapping(const PeerMapping&) = delete;
  PeerMapping& operator=(const PeerMapping&) = delete;
  ~PeerMapping();

  explicit operator bool() const { return base_ != nullptr; }
  // Exactly the bytes asked for.
  MemoryRef view() const { return view_; }
  std::byte* data() const { return view_.data; }
  std::uint64_t bytes() const { return view_.bytes; }

 private:
  PeerMapping(void* base, std::size_t mapped_bytes, MemoryRef view)
      : base_(base), mapped_bytes_(mapped_bytes), view_(view) {}

  void* base_ = nullptr;  // page-aligned start of the mapping
  std::size_t mapped_bytes_ = 0;
  MemoryRef view_;
};

}  // namespace arcomm
