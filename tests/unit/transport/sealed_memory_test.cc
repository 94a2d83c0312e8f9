#include "transport/device/sealed_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

namespace arcomm {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

TEST(SealedMemory, HasAllItsPagesAndASizeThatNobodyChanges) {
  const auto memory = make_sealed_memory("test", 5000);
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_EQ(memory->bytes, 8192u);
  struct stat info {};
  ASSERT_EQ(::fstat(memory->fd.get(), &info), 0);
  EXPECT_EQ(info.st_blocks * 512, 8192);
  EXPECT_NE(::ftruncate(memory->fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(memory->fd.get(), 16384), 0);
}

TEST(SealedMemory, RefusesWhatTheMachineCannotGive) {
  const auto memory = make_sealed_memory("test", std::uint64_t{1} << 60);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().reason, Reason::OutOfMemory);
  EXPECT_EQ(make_sealed_memory("test", 0).error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(make_sealed_memory("test", kUnlimited).error().code, ErrorCode::OutOfRange);
}

}  // namespace
}  // namespace arcomm
