#include "transport/device/sealed_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

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

TEST(SealedMemory, HeedsTheTightestControlGroupOnTheWayUp) {
  char root[] = "/tmp/arcomm-group-XXXXXX";
  ASSERT_NE(::mkdtemp(root), nullptr);
  const auto group = [&](const std::string& folder, const char* most, const char* used) {
    std::filesystem::create_directories(root + folder);
    std::ofstream(root + folder + "/memory.max") << most << "\n";
    std::ofstream(root + folder + "/memory.current") << used << "\n";
  };
  group("/a/b", "max", "10");
  EXPECT_EQ(available_in_group(root, "/a/b"), kUnlimited);
  group("/a/b", "1000", "10");
  EXPECT_EQ(available_in_group(root, "/a/b"), 990u);
  group("/a", "500", "100");
  EXPECT_EQ(available_in_group(root, "/a/b"), 400u) << "an ancestor's limit binds too";
  group("", "90", "100");
  EXPECT_EQ(available_in_group(root, "/a/b"), 0u);
  EXPECT_EQ(available_in_group(root, "/"), 0u);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace arcomm
