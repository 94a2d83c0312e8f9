#include "client/src/host/in_call/shared_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/scratch_folder.h"

namespace arcomm::client {
namespace {

class SharedCache : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ / ("sys/devices/system/cpu/" + file);
    std::filesystem::create_directories(path.parent_path());
    support::write_text(path, text);
  }
  support::ScratchFolder root_;
};

TEST_F(SharedCache, IsOneThatAllCoresWhichAreOnlineHaveInCommon) {
  write("online", "0-3\n");
  write("cpu0/cache/index3/shared_cpu_list", "0-3\n");
  EXPECT_TRUE(cores_share_a_cache(root_.path()));
  write("cpu0/cache/index3/shared_cpu_list", "0-1\n");
  EXPECT_FALSE(cores_share_a_cache(root_.path()));
}

TEST_F(SharedCache, IsNoneWhereTheMachineDoesNotSay) {
  EXPECT_FALSE(cores_share_a_cache(root_.path()));
  write("online", "0-3\n");
  EXPECT_FALSE(cores_share_a_cache(root_.path()));
}

}  // namespace
}  // namespace arcomm::client
