#include "daemon/control/fd_closer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace arcomm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

UniqueFd memory() {
  return UniqueFd(::memfd_create("test", MFD_CLOEXEC));
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

bool closed_soon(int fd) {
  const auto until = steady_clock::now() + seconds(30);
  while (is_open(fd) && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  return !is_open(fd);
}

// A connection whose last close blocks until the other end is closed, for at most 20 s.
struct Lingering {
  Lingering() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    end.reset(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ::connect(end.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    deaf.reset(::accept(listener.get(), nullptr, nullptr));
    EXPECT_TRUE(deaf);
    const std::vector<char> bytes(1 << 20);
    while (::send(end.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    EXPECT_EQ(::fcntl(end.get(), F_SETFL, ::fcntl(end.get(), F_GETFL) & ~O_NONBLOCK), 0);
    const struct linger on { .l_onoff = 1, .l_linger = 20 };
    EXPECT_EQ(::setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &on, sizeof(on)), 0);
  }
  UniqueFd end, deaf;
};

TEST(FdCloser, IsFullWhileOneThatBlocksHoldsUpAllItMayKeep) {
  FdCloser closer;
  Lingering stranger;
  closer.close(std::move(stranger.end));
  for (std::size_t i = 1; i < FdCloser::kMostWaiting; ++i) {
    EXPECT_FALSE(closer.full()) << i;
    closer.close(memory());
  }
  EXPECT_TRUE(closer.full());
  stranger.deaf.reset();  // the close returns now
  const auto until = steady_clock::now() + seconds(15);
  while (closer.full() && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(closer.full());
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

TEST(FdCloser, GoesThoughOneNeverReturns) {
  Lingering stranger;
  const auto before = steady_clock::now();
  {
    FdCloser closer;
    closer.close(std::move(stranger.end));
  }
  EXPECT_LT(steady_clock::now() - before, seconds(10));
}

}  // namespace
}  // namespace arcomm
