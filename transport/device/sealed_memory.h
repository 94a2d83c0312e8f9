// The one way to make memory that another process may map: a memfd of whole pages, all of them
// there, whose size nobody can change any more. Refused rather than tried where the machine or the
// daemon's control group cannot give it: touching pages that are not there ends in the kernel's
// killer. Any thread; make_sealed_memory may take long (it touches every page), and whoever has
// others to serve meanwhile makes a GrowingMemory slice by slice.
#pragma once

#include <cstdint>
#include <utility>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

struct SealedMemory {
  UniqueFd fd;
  std::uint64_t bytes = 0;  // whole pages
};

std::uint64_t page_bytes();

// Rounds `bytes` up to whole pages. OutOfRange where that is not a size a file can have.
Result<std::uint64_t> round_to_pages(std::uint64_t bytes);

// ResourceExhausted unless `bytes` more can be taken and a reserve be left to everything else.
// promised: what others have been allowed and have yet to touch.
Status check_available(std::uint64_t bytes, std::uint64_t promised = 0);

// What check_available takes from: without the reserve, and whatever is promised.
std::uint64_t available_memory_bytes();

// Of the machine, or what the control groups that this process is in allow at most, used or not.
std::uint64_t most_memory_bytes();

Result<SealedMemory> make_sealed_memory(const char* name, std::uint64_t bytes);

class GrowingMemory {
 public:
  // Refuses what make_sealed_memory refuses; has no page yet.
  static Result<GrowingMemory> begin(const char* name, std::uint64_t bytes, std::uint64_t promised);
  // Touches the next `most` bytes, or what is missing; sealed once nothing is. After an error it
  // can only be taken apart.
  Status grow(std::uint64_t most);
  std::uint64_t missing() const { return memory_.bytes - touched_; }
  SealedMemory take() && { return std::move(memory_); }  // as far as it got

 private:
  explicit GrowingMemory(SealedMemory memory) : memory_(std::move(memory)) {}

  SealedMemory memory_;
  std::uint64_t touched_ = 0;
};

}  // namespace arcomm
