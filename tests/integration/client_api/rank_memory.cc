#include "tests/integration/client_api/rank_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/include/arclient.h"

namespace arcomm {

std::string_view text_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::Heap:
      return "heap";
    case MemoryKind::Registered:
      return "registered";
    case MemoryKind::SharedMemfd:
      return "shared memfd";
    case MemoryKind::Library:
      return "library";
  }
  return "unknown";
}

RankMemory::RankMemory(MemoryKind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
  if (kind == MemoryKind::Library) {
    void* memory = nullptr;
    EXPECT_EQ(arcMemAlloc(&memory, bytes), arcSuccess) << arcGetLastError(nullptr);
    data_ = static_cast<std::byte*>(memory);
    return;
  }
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (kind == MemoryKind::SharedMemfd) {
    memfd_ = UniqueFd(::memfd_create("api_property_test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(memfd_.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(memfd_.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    flags = MAP_SHARED;
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, memfd_.get(), 0);
  EXPECT_NE(memory, MAP_FAILED);
  if (memory == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(memory);
  if (kind != MemoryKind::Heap) {
    EXPECT_EQ(arcMemRegister(data_, bytes), arcSuccess) << arcGetLastError(nullptr);
  }
}

RankMemory::~RankMemory() {
  if (data_ == nullptr) return;
  if (kind_ == MemoryKind::Library) {
    EXPECT_EQ(arcMemFree(data_), arcSuccess) << arcGetLastError(nullptr);
    return;
  }
  if (kind_ != MemoryKind::Heap) {
    EXPECT_EQ(arcMemDeregister(data_), arcSuccess) << arcGetLastError(nullptr);
  }
  ::munmap(data_, bytes_);
}

}  // namespace arcomm
