// One daemon per runtime folder, and workers that the watchdog looks after.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/instance_lock.h"
#include "daemon/worker_watch.h"
#include "tests/unit/daemon/control/fake_worker.h"

namespace arcomm::test {
namespace {

class InstanceLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/arcomm-lock-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(InstanceLockTest, ASecondOneIsToldThePidOfTheFirst) {
  const Result<InstanceLock> first = InstanceLock::take(folder_ + "/run");
  ASSERT_TRUE(first) << first.error().message;
  const Result<InstanceLock> second = InstanceLock::take(folder_ + "/run");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::AlreadyExists);
  EXPECT_NE(second.error().message.find("already running (pid " + std::to_string(::getpid()) + ")"),
            std::string::npos)
      << second.error().message;
}

TEST_F(InstanceLockTest, IsFreeAgainAfterItsHolderWasKilled) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Result<InstanceLock> held = InstanceLock::take(folder_);
    ::kill(::getpid(), SIGKILL);
    ::_exit(held ? 1 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/arcommd.lock")) << "the stale file of a crash";
  EXPECT_TRUE(InstanceLock::take(folder_));
}

TEST_F(InstanceLockTest, SaysWhatToDoWhereTheFolderCannotBeMade) {
  std::ofstream(folder_ + "/file") << "x";
  const Result<InstanceLock> taken = InstanceLock::take(folder_ + "/file/run");
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find("set runtime_dir"), std::string::npos)
      << taken.error().message;
}

TEST(WorkerWatch, FindsAWorkerThatStandsStillForLongerThanAllowed) {
  FakeWorker worker;  // its progress never grows
  WorkerWatch watch;
  const WorkerWatch::Clock::time_point start{};
  watch.add("host:0", worker, start);
  const std::chrono::milliseconds stall(1000);
  EXPECT_EQ(watch.find_stuck(start + std::chrono::milliseconds(900), stall), "");
  EXPECT_EQ(watch.find_stuck(start + std::chrono::milliseconds(1100), stall), "host:0");
}

TEST(WorkerWatch, AWorkerThatAnswersMessagesIsNotStuckHoweverIdle) {
  FakeWorker worker;
  WorkerWatch watch;
  const WorkerWatch::Clock::time_point start{};
  watch.add("host:0", worker, start);
  for (int second = 1; second < 10; ++second) {
    worker.turns = static_cast<std::uint64_t>(second);  // it handled the message of the last look
    EXPECT_EQ(
        watch.find_stuck(start + std::chrono::seconds(second), std::chrono::milliseconds(1500)),
        "");
  }
}

}  // namespace
}  // namespace arcomm::test
