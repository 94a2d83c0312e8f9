#include "daemon/control/descriptors/fd_closer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/sessions/descriptor_message.h"
#include "tests/support/sessions/lingering_socket.h"

namespace arcomm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using support::LingeringSocket;

constexpr uid_t kStranger = 1000, kOther = 999;

UniqueFd memory() {
  return UniqueFd(::memfd_create("test", MFD_CLOEXEC));
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

std::size_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

bool closed_soon(int fd) {
  const auto until = steady_clock::now() + seconds(30);
  while (is_open(fd) && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  return !is_open(fd);
}

TEST(FdCloser, IsFullForTheOwnerOfOneThatBlocksAndForNobodyElse) {
  FdCloser closer;
  LingeringSocket stranger;
  closer.close(kStranger, std::move(stranger.end));
  for (std::size_t i = 1; i < FdCloser::kMostWaiting; ++i) {
    EXPECT_FALSE(closer.full(kStranger)) << i;
    closer.close(kStranger, memory());
  }
  EXPECT_TRUE(closer.full(kStranger));
  EXPECT_FALSE(closer.full(kOther));
  UniqueFd others = memory();
  const int number = others.get();
  closer.close(kOther, std::move(others));
  EXPECT_TRUE(closed_soon(number));
  stranger.deaf.reset();  // the close returns now
  const auto until = steady_clock::now() + seconds(15);
  while (closer.full(kStranger) && steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(closer.full(kStranger));
}

TEST(FdCloser, HasAThreadLessForEachOwnerWhoseCloseIsStuckUntilOneReturns) {
  FdCloser closer;
  std::vector<LingeringSocket> stuck(FdCloser::kMostThreads);
  std::vector<int> numbers;
  for (const LingeringSocket& one : stuck) numbers.push_back(one.end.get());
  for (std::size_t i = 0; i + 1 < stuck.size(); ++i)
    closer.close(kStranger + static_cast<uid_t>(i), std::move(stuck[i].end));
  UniqueFd served = memory();
  const int first = served.get();
  closer.close(kOther, std::move(served));
  EXPECT_TRUE(closed_soon(first));

  closer.close(kStranger + static_cast<uid_t>(stuck.size()), std::move(stuck.back().end));
  for (const int number : numbers)
    ASSERT_TRUE(closed_soon(number)) << "its number is free once a thread is in its close";
  const std::size_t threads = threads_of_process();
  UniqueFd waits = memory();
  const int second = waits.get();
  closer.close(kOther, std::move(waits));
  EXPECT_EQ(threads_of_process(), threads) << "all there may be are stuck";
  EXPECT_TRUE(is_open(second));
  stuck.front().deaf.reset();
  EXPECT_TRUE(closed_soon(second));
}

TEST(FdCloser, ManyUidsOfOneRangeLeaveThreadsAndRoomForOthers) {
  constexpr uid_t kRange = 131'072;
  FdCloser closer;
  std::vector<LingeringSocket> stuck(FdCloser::kMostThreads);
  for (std::size_t i = 0; i < stuck.size(); ++i)
    closer.close(kRange + static_cast<uid_t>(i), std::move(stuck[i].end));
  UniqueFd served = memory();
  const int number = served.get();
  closer.close(kOther, std::move(served));
  EXPECT_TRUE(closed_soon(number)) << "no thread is left";

  std::size_t taken = stuck.size();
  for (uid_t uid = kRange; uid < kRange + 100; ++uid) {
    for (; !closer.full(uid); ++taken) closer.close(uid, UniqueFd(::eventfd(0, EFD_CLOEXEC)));
    if (taken > FdCloser::kMostWaitingOfAll) break;
  }
  EXPECT_LE(taken, FdCloser::kMostWaitingOfAll / 2 + FdCloser::kMostThreads);
  EXPECT_TRUE(closer.full(kRange + 1000)) << "a further uid of the range";
  EXPECT_FALSE(closer.full(kOther));
  stuck.clear();  // the closes return now
}

// A connection in which no descriptor waits can block nobody: however many an owner leaves, they
// do not pile up behind one that does.
TEST(FdCloser, ClosesASocketAtOnceUnlessADescriptorWaitsInIt) {
  FdCloser closer;
  LingeringSocket stranger;
  closer.close(kStranger, std::move(stranger.end));
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    for (const bool with_descriptor : {false, true}) {
      int ends[2];
      ASSERT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
      const UniqueFd peer(ends[0]);
      UniqueFd socket(ends[1]);
      ASSERT_EQ(::send(peer.get(), "unread", 6, 0), 6);
      if (with_descriptor) {
        ASSERT_TRUE(support::send_descriptor(peer.get(), memory().get()));
      }
      closer.close_socket(kStranger, std::move(socket));
      EXPECT_EQ(is_open(ends[1]), with_descriptor);
      EXPECT_EQ(::send(peer.get(), "more", 4, MSG_NOSIGNAL), -1);
    }
  }
}

TEST(FdCloser, ClosesWhatItsHoldersLeaveWhenTheLastLetsGo) {
  FdCloser closer;
  auto held = closer.hold(memory());
  auto other = held;
  const int left = held->get();
  held.reset();
  EXPECT_TRUE(is_open(left));
  other.reset();
  EXPECT_TRUE(closed_soon(left));

  auto passed = closer.hold(memory());
  const UniqueFd taken = std::move(*passed);
  passed.reset();
  EXPECT_TRUE(is_open(taken.get()));
}

TEST(FdCloser, WhatOutlivesItIsClosedByItsHolder) {
  std::shared_ptr<UniqueFd> held;
  {
    FdCloser closer;
    held = closer.hold(memory());
  }
  const int left = held->get();
  held.reset();
  EXPECT_FALSE(is_open(left));
}

TEST(FdCloser, GoesThoughSomeNeverReturn) {
  std::vector<LingeringSocket> strangers(5);
  const auto before = steady_clock::now();
  {
    FdCloser closer;
    for (LingeringSocket& one : strangers)
      closer.close(static_cast<uid_t>(&one - strangers.data()), std::move(one.end));
  }
  EXPECT_LT(steady_clock::now() - before, seconds(3));
}

}  // namespace
}  // namespace arcomm::test
