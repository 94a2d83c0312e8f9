// How the MPS control daemon is started, with a script in its place that writes down what it is
// told.
#include "daemon/mps_server.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace arcomm::test {
namespace {

class MpsServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/arcomm-mps-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    path_ = ::getenv("PATH");
    ::setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
    answers(0, 0, 0);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  // The exit statuses of: -d -multiuser-server, -d, and words on standard input.
  void answers(int for_all, int plain, int words) {
    const std::string program = folder_ + "/nvidia-cuda-mps-control";
    std::ofstream(program) << "#!/bin/sh\n"
                           << "case \"$*\" in\n"
                           << "'') read word; echo \"$word\" >>" << folder_ << "/told; exit "
                           << words << ";;\n"
                           << "'-d') echo \"$*\" >>" << folder_ << "/told; exit " << plain << ";;\n"
                           << "'-d -multiuser-server') echo \"$*\" >>" << folder_ << "/told; exit "
                           << for_all << ";;\n"
                           << "*) exit 99;;\n"
                           << "esac\n";
    std::filesystem::permissions(program, std::filesystem::perms(0755));
  }
  Result<std::unique_ptr<MpsServer>> start(bool as_root) {
    return MpsServer::start(folder_, as_root);
  }
  std::vector<std::string> told() const {
    std::vector<std::string> lines;
    std::ifstream file(folder_ + "/told");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  using Lines = std::vector<std::string>;

  std::string folder_, path_;
};

TEST_F(MpsServerTest, RootsOneServesAllUsersAndIsToldToQuit) {
  {
    const auto server = start(true);
    ASSERT_TRUE(server) << server.error().message;
    EXPECT_TRUE((*server)->serves_all_users());
    EXPECT_EQ(told(), Lines{"-d -multiuser-server"});
  }
  EXPECT_EQ(told(), (Lines{"-d -multiuser-server", "quit"}));
  EXPECT_TRUE(std::filesystem::is_directory(MpsServer::pipe_folder(folder_)));
}

TEST_F(MpsServerTest, AnyOtherUsersOneServesHimAlone) {
  const auto server = start(false);
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_FALSE((*server)->serves_all_users());
  EXPECT_EQ(told(), Lines{"-d"});
}

TEST_F(MpsServerTest, AProgramWithoutTheOptionIsStartedWithoutIt) {
  answers(1, 0, 1);
  const auto server = start(true);
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_FALSE((*server)->serves_all_users());
  EXPECT_EQ(told(), (Lines{"-d -multiuser-server", "get_server_list", "-d"}));
}

TEST_F(MpsServerTest, TakesOverTheOneThatServesItsFolders) {
  ASSERT_TRUE(start(true));
  std::filesystem::remove(folder_ + "/told");
  answers(1, 1, 0);
  {
    const auto roots = start(true);
    ASSERT_TRUE(roots) << roots.error().message;
    EXPECT_TRUE((*roots)->serves_all_users()) << "as it was started";
  }
  const auto own = start(false);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_FALSE((*own)->serves_all_users());
  const Lines lines = told();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "get_server_list"), 2);
}

TEST_F(MpsServerTest, OneThatIsNotKnownToServeAllUsersIsTakenOverAsOneUsers) {
  answers(1, 1, 0);
  const auto of_an_earlier_version = start(true);
  ASSERT_TRUE(of_an_earlier_version);
  EXPECT_FALSE((*of_an_earlier_version)->serves_all_users());
  answers(0, 0, 0);
  ASSERT_TRUE(start(true));
  answers(1, 0, 1);  // an older driver
  ASSERT_TRUE(start(true));
  answers(1, 1, 0);
  const auto taken_over = start(true);
  ASSERT_TRUE(taken_over);
  EXPECT_FALSE((*taken_over)->serves_all_users()) << "the last one was started without";
}

TEST_F(MpsServerTest, SaysWhereToLookWhenItDoesNotStart) {
  answers(1, 3, 1);
  for (const bool as_root : {true, false}) {
    const auto server = start(as_root);
    ASSERT_FALSE(server);
    EXPECT_NE(server.error().message.find("-d ended with status 3"), std::string::npos)
        << server.error().message;
    EXPECT_NE(server.error().message.find("control.log"), std::string::npos);
  }
}

TEST_F(MpsServerTest, SaysThatTheProgramIsMissing) {
  ::setenv("PATH", "/nowhere", 1);
  const auto server = start(false);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::NotFound);
}

}  // namespace
}  // namespace arcomm::test
