// A piece of memory as an application may have it, with room before and behind the part a case
// uses, so that a write outside of it is seen. Thread: one at a time. Ownership: owns the memory
// and its registration with libarclient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/unique_fd.h"

namespace arcomm {

enum class MemoryKind : std::uint8_t {
  Heap,         // the library has never heard of it: staged
  Registered,   // heap, made known with arcMemRegister: staged through a buffer of its own
  SharedMemfd,  // a sealed memfd, made known: shared as it is
  Library,      // arcMemAlloc
};
inline constexpr unsigned kMemoryKinds = 4;
std::string_view text_of(MemoryKind kind);

class RankMemory {
 public:
  // A failed assertion and nullptr data() if the library refuses.
  RankMemory(MemoryKind kind, std::size_t bytes);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  MemoryKind kind_;
  std::size_t bytes_;
  UniqueFd memfd_;
  std::byte* data_ = nullptr;
};

}  // namespace arcomm
