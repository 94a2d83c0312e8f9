// One daemon per runtime folder, and workers that the watchdog looks after.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/instance_lock.h"
#include "daemon/stall_watch.h"
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
  static mode_t mode_of(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  }
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

TEST_F(InstanceLockTest, NobodyElseCanOpenItWhateverTheUmask) {
  const mode_t before = ::umask(0);
  const Result<InstanceLock> taken = InstanceLock::take(folder_ + "/run");
  ::umask(before);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(mode_of(folder_ + "/run/arcommd.lock"), 0600u);
  EXPECT_EQ(mode_of(folder_ + "/run"), 0755u);
}

// Left by a version that made it 0644. To be locked a file need not be open for writing.
TEST_F(InstanceLockTest, AStrangerWhoWaitsForTheLockOfAnOldFileDoesNotGetIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  const std::string path = folder_ + "/arcommd.lock";
  std::ofstream(path) << "4711\n";
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  for (const bool has_it : {false, true}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd told(ends[0]);
    UniqueFd teller(ends[1]);
    const UniqueFd old_daemon(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!has_it) {
      ASSERT_EQ(::flock(old_daemon.get(), LOCK_EX), 0);
    }
    const pid_t squatter = ::fork();
    ASSERT_GE(squatter, 0);
    if (squatter == 0) {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
      const int file = ::open(path.c_str(), O_RDONLY);
      if (has_it && ::flock(file, LOCK_EX | LOCK_NB) != 0) ::_exit(2);
      (void)!::write(teller.get(), "x", 1);
      if (!has_it) (void)::flock(file, LOCK_EX);
      for (;;) ::pause();
    }
    teller.reset();
    char byte = 0;
    ASSERT_EQ(::read(told.get(), &byte, 1), 1);
    if (!has_it) {
      ASSERT_EQ(::flock(old_daemon.get(), LOCK_UN), 0);
    }
    {
      const Result<InstanceLock> taken = InstanceLock::take(folder_);
      EXPECT_TRUE(taken) << taken.error().message;
      EXPECT_EQ(mode_of(path), 0600u);
      EXPECT_FALSE(InstanceLock::take(folder_)) << "it is held";
    }
    ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
    ::kill(squatter, SIGKILL);
    ASSERT_EQ(::waitpid(squatter, nullptr, 0), squatter);
  }
}

TEST_F(InstanceLockTest, AnOldFileWhoseHolderIsADaemonIsLeftToIt) {
  const std::string path = folder_ + "/arcommd.lock";
  std::ofstream(path) << ::getpid() << "\n";
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  const UniqueFd old_daemon(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(old_daemon.get(), LOCK_EX), 0);
  const Result<InstanceLock> taken = InstanceLock::take(folder_);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::AlreadyExists);
}

TEST_F(InstanceLockTest, WhatBearsItsNameAndIsNoFileOfOursIsReplaced) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make another user's file";
  const std::string path = folder_ + "/arcommd.lock";
  std::ofstream(path) << "x";
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_TRUE(InstanceLock::take(folder_));
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(InstanceLock::take(folder_));
}

TEST_F(InstanceLockTest, AFolderInWhichOthersCanReplaceFilesIsMendedOrRefused) {
  ASSERT_EQ(::mkdir((folder_ + "/run").c_str(), 0700), 0);
  ASSERT_EQ(::chmod((folder_ + "/run").c_str(), 0777), 0);
  EXPECT_TRUE(InstanceLock::take(folder_ + "/run"));
  EXPECT_EQ(mode_of(folder_ + "/run"), 0755u);
  ASSERT_EQ(::chmod((folder_ + "/run").c_str(), 01777), 0);  // as /tmp
  const Result<InstanceLock> shared = InstanceLock::take(folder_ + "/run");
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().code, ErrorCode::PermissionDenied);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chmod((folder_ + "/run").c_str(), 0755), 0);
  ASSERT_EQ(::chown((folder_ + "/run").c_str(), 65534, 65534), 0);
  const Result<InstanceLock> foreign = InstanceLock::take(folder_ + "/run");
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("belongs to uid 65534"), std::string::npos)
      << foreign.error().message;
}

TEST_F(InstanceLockTest, SaysWhatToDoWhereTheFolderCannotBeMade) {
  std::ofstream(folder_ + "/file") << "x";
  const Result<InstanceLock> taken = InstanceLock::take(folder_ + "/file/run");
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find("set runtime_dir"), std::string::npos)
      << taken.error().message;
}

TEST(StallWatch, FindsAWorkerThatStandsStillForLongerThanAllowed) {
  FakeWorker worker;  // its progress never grows
  StallWatch watch;
  const StallWatch::Clock::time_point start{};
  watch.add("host:0", worker, start);
  const std::chrono::milliseconds stall(1000);
  EXPECT_EQ(watch.find_stuck(start, stall), "") << "it is asked";
  EXPECT_EQ(watch.find_stuck(start + std::chrono::milliseconds(900), stall), "");
  EXPECT_EQ(watch.find_stuck(start + std::chrono::milliseconds(1100), stall),
            "the worker of host:0");
}

TEST(StallWatch, AWorkerThatAnswersMessagesIsNotStuckHoweverIdle) {
  FakeWorker worker;
  StallWatch watch;
  const StallWatch::Clock::time_point start{};
  watch.add("host:0", worker, start);
  for (int second = 1; second < 10; ++second) {
    worker.turns = static_cast<std::uint64_t>(second);  // it handled the message of the last look
    EXPECT_EQ(
        watch.find_stuck(start + std::chrono::seconds(second), std::chrono::milliseconds(1500)),
        "");
  }
}

TEST(StallWatch, WatchesTheControlLoopBesideTheWorkers) {
  FakeWorker worker;
  std::uint64_t turns = 0;
  int nudged = 0;
  StallWatch watch;
  const StallWatch::Clock::time_point start{};
  watch.add("host:0", worker, start);
  watch.add(
      "the control loop", [&] { return turns; }, [&] { ++nudged; }, start);
  const std::chrono::milliseconds stall(1000);
  worker.turns = turns = 1;
  EXPECT_EQ(watch.find_stuck(start + std::chrono::milliseconds(900), stall), "");
  EXPECT_EQ(nudged, 0) << "it moves";
  worker.turns = 2;
  EXPECT_EQ(watch.find_stuck(start + std::chrono::milliseconds(2000), stall), "");
  EXPECT_EQ(nudged, 1) << "it is asked, after however long";
  worker.turns = 3;
  EXPECT_EQ(watch.find_stuck(start + std::chrono::milliseconds(3100), stall), "the control loop");
  turns = 2;
  EXPECT_EQ(watch.find_stuck(start + std::chrono::milliseconds(3200), stall), "");
}

// An idle daemon with a short `stall` was killed where its main thread looked more seldom than
// that.
TEST(StallWatch, WhoAnswersIsNotStuckHoweverSeldomItIsLookedAt) {
  std::uint64_t turns = 0, messages = 0;
  StallWatch watch;
  const StallWatch::Clock::time_point start{};
  watch.add(
      "the control loop", [&] { return turns; }, [&] { ++messages; }, start);
  for (int second = 0; second < 10; ++second) {
    EXPECT_EQ(
        watch.find_stuck(start + std::chrono::seconds(second), std::chrono::milliseconds(500)), "");
    turns = messages;  // it answers, and is idle again
  }
}

}  // namespace
}  // namespace arcomm::test
