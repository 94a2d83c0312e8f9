#include "transport/device/memory_groups.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace arcomm {
namespace {

class MemoryGroups : public ::testing::Test {
 protected:
  MemoryGroups() { EXPECT_NE(::mkdtemp(root_.data()), nullptr); }
  ~MemoryGroups() override { std::filesystem::remove_all(root_); }
  void make(const std::string& path, const char* most, const char* used) const {
    std::filesystem::create_directories(root_ + path);
    std::ofstream(root_ + path + "/memory.max") << most << "\n";
    std::ofstream(root_ + path + "/memory.current") << used << "\n";
  }
  std::vector<MemoryGroup> read(const std::string& path) const {
    return read_memory_groups_below(root_, path);
  }

  std::string root_ = "/tmp/arcomm-group-XXXXXX";
};

TEST_F(MemoryGroups, AreThoseWithALimitOnTheWayUp) {
  make("/a/b", "max", "10");
  EXPECT_TRUE(read("/a/b").empty());
  make("/a/b", "1000", "10");
  make("/a", "500", "100");
  std::vector<MemoryGroup> found = read("/a/b/");
  ASSERT_EQ(found.size(), 2u) << "an ancestor's limit binds too";
  EXPECT_EQ(found[0].folder, root_ + "/a");
  EXPECT_EQ(found[0].most_bytes, 500u);
  EXPECT_EQ(found[0].used_bytes, 100u);
  EXPECT_EQ(found[1].folder, root_ + "/a/b");
  make("", "90", "100");
  EXPECT_EQ(read("/a/b").size(), 3u);
  found = read("/");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].folder, root_);
}

TEST_F(MemoryGroups, AreNotLookedForOutsideOfWhatIsSeen) {
  make("", "90", "100");
  EXPECT_TRUE(read("/../other").empty());
  EXPECT_EQ(read("/gone").size(), 1u) << "what there is of the path";
}

// A stranger who may divide its own group nests as many as it likes.
TEST_F(MemoryGroups, AreLookedForOnlySoDeep) {
  std::string path;
  for (std::size_t i = 0; i < kMostGroupDepth + 10; ++i) make(path += "/x", "10", "1");
  EXPECT_EQ(read(path).size(), kMostGroupDepth - 1) << "the root has no limit";
}

TEST(MemoryGroupsOfProcesses, AreTheSameBySelfAndByNumber) {
  const std::vector<MemoryGroup> own = read_memory_groups(), named = read_memory_groups(::getpid());
  ASSERT_EQ(own.size(), named.size());
  for (std::size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i].folder, named[i].folder);
  EXPECT_TRUE(read_memory_groups(0x7fffffff).empty()) << "there is no such process";
}

}  // namespace
}  // namespace arcomm
