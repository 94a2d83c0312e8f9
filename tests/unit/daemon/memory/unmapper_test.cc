#include "daemon/memory/unmapper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "proto/unique_fd.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kLarge = 2 << 20;

PeerMapping mapping(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return PeerMapping::map(fd.get(), 0, bytes).value();
}

// msync refuses what is not mapped.
bool is_mapped(std::byte* at) {
  return ::msync(at, 4096, MS_ASYNC) == 0;
}

void wait_for(const Unmapper& unmapper, std::uint64_t count) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (unmapper.released() < count && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
}

TEST(Unmapper, UnmapsALargeMappingOnItsOwnThread) {
  Unmapper unmapper;
  PeerMapping large = mapping(kLarge);
  std::byte* at = large.data();
  ASSERT_TRUE(is_mapped(at));
  unmapper.give(std::move(large));
  wait_for(unmapper, 1);
  EXPECT_EQ(unmapper.released(), 1u);
  EXPECT_FALSE(is_mapped(at));
}

// It may be the last that holds a large file.
TEST(Unmapper, UnmapsASmallMappingThereToo) {
  Unmapper unmapper;
  PeerMapping small = mapping(4096);
  std::byte* at = small.data();
  unmapper.give(std::move(small));
  wait_for(unmapper, 1);
  EXPECT_EQ(unmapper.released(), 1u);
  EXPECT_FALSE(is_mapped(at));
}

TEST(Unmapper, ClosesMemoryThatCouldNotBeMapped) {
  Unmapper unmapper;
  UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  const int number = memory.get();
  unmapper.give(std::move(memory));
  wait_for(unmapper, 1);
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(Unmapper, FinishesWhatIsQueuedBeforeItGoes) {
  std::byte* last = nullptr;
  {
    Unmapper unmapper;
    for (std::size_t i = 0; i < Unmapper::kMaxQueued + 8; ++i) {
      PeerMapping one = mapping(kLarge);
      last = one.data();
      unmapper.give(std::move(one));
    }
  }
  EXPECT_FALSE(is_mapped(last));
}

}  // namespace
}  // namespace arcomm
