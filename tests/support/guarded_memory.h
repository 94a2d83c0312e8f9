// Memory between two pages that nobody may touch: an access beside what begins or ends there ends
// the program. Sanitizers do not see those of vector instructions with masks, nor those of code
// that is not instrumented. Thread: one at a time.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace arcomm::support {

class GuardedMemory {
 public:
  // Room for so many bytes.
  explicit GuardedMemory(std::size_t most_bytes)
      : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        bytes_((std::max<std::size_t>(most_bytes, 1) + page_ - 1) / page_ * page_),
        base_(static_cast<std::byte*>(
            ::mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (base_ == MAP_FAILED || ::mprotect(base_ + page_, bytes_, PROT_READ | PROT_WRITE) != 0)
      std::abort();
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { ::munmap(base_, bytes_ + 2 * page_); }

  enum class Side : std::uint8_t { Begin, End };
  // So many bytes that begin right behind the first page, or end right before the last.
  std::byte* at(Side side, std::size_t bytes) {
    return side == Side::Begin ? base_ + page_ : base_ + page_ + bytes_ - bytes;
  }
  // Everything between the two pages.
  std::span<std::byte> all() { return {base_ + page_, bytes_}; }
  // With `poison` everywhere but in the `bytes` at `side`: what was not to be written was not.
  bool is_all(std::byte poison, Side side, std::size_t bytes) {
    const std::size_t rest = bytes_ - bytes;
    const std::byte* const begin = side == Side::Begin ? at(side, bytes) + bytes : base_ + page_;
    return std::all_of(begin, begin + rest, [poison](std::byte each) { return each == poison; });
  }

 private:
  const std::size_t page_, bytes_;
  std::byte* const base_;
};

}  // namespace arcomm::support
