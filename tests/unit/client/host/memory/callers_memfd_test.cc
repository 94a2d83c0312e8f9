#include "client/src/host/memory/callers_memfd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

namespace arcomm::client {
namespace {

constexpr std::size_t kPage = 4096;

struct Mapped {
  UniqueFd fd;
  std::byte* base = nullptr;
  Mapped(std::size_t bytes, int seals, int share = MAP_SHARED) {
    fd.reset(::memfd_create("arcomm-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    base =
        static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, share, fd.get(), 0));
    size = bytes;
  }
  ~Mapped() { ::munmap(base, size); }
  std::size_t size = 0;
};

TEST(CallersMemfd, FindsTheSealedMemfdBehindAddresses) {
  const Mapped memory(4 * kPage, F_SEAL_SHRINK);
  const auto found = find_callers_memfd(memory.base + kPage + 100, kPage);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->first_page, memory.base + kPage);
  EXPECT_EQ(found->offset, kPage);
  EXPECT_EQ(found->bytes, 2 * kPage);
  EXPECT_NE(found->memory.get(), memory.fd.get());
}

TEST(CallersMemfd, WantsTheSeal) {
  const Mapped memory(kPage, 0);
  EXPECT_FALSE(find_callers_memfd(memory.base, kPage).has_value());
}

TEST(CallersMemfd, WantsACallersMemfd) {
  const Mapped memory(kPage, F_SEAL_SHRINK, MAP_PRIVATE);
  EXPECT_FALSE(find_callers_memfd(memory.base, kPage).has_value());
}

TEST(CallersMemfd, WantsADescriptorThatIsStillOpen) {
  Mapped memory(kPage, F_SEAL_SHRINK);
  memory.fd.reset();
  EXPECT_FALSE(find_callers_memfd(memory.base, kPage).has_value());
}

TEST(CallersMemfd, RefusesARangeThatLeavesTheMapping) {
  const Mapped memory(2 * kPage, F_SEAL_SHRINK);
  EXPECT_FALSE(find_callers_memfd(memory.base + kPage, 64 * kPage).has_value());
}

TEST(CallersMemfd, FindsNothingBehindTheHeap) {
  const std::vector<char> heap(kPage);
  EXPECT_FALSE(find_callers_memfd(heap.data(), heap.size()).has_value());
}

}  // namespace
}  // namespace arcomm::client
