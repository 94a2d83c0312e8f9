// Memory of another process on this node, mapped here: a sealed memfd that arrived by SCM_RIGHTS.
// Move-only owner of its mapping; any one thread at a time. The mapping outlives the process that
// made the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "proto/shared_mapping.h"
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

  explicit operator bool() const { return static_cast<bool>(mapping_); }
  // Exactly the bytes asked for.
  MemoryRef view() const { return {data(), bytes()}; }
  std::byte* data() const { return mapping_.data(); }
  std::uint64_t bytes() const { return mapping_.bytes(); }

 private:
  explicit PeerMapping(SharedMapping mapping) : mapping_(std::move(mapping)) {}

  SharedMapping mapping_;
};

}  // namespace arcomm
