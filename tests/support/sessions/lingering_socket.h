// A descriptor of the kind that a stranger can send: its last close blocks for as long as it likes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "proto/unique_fd.h"

namespace arcomm::support {

// A connection whose last close blocks until the other end is closed, for at most so long. Whoever
// sends `end` closes its own copy before the receiver can close the one that it got: that would be
// the last.
struct LingeringSocket {
  explicit LingeringSocket(int seconds = 20) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    end.reset(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(::connect(end.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ||
                errno == EINPROGRESS);
    deaf.reset(::accept(listener.get(), nullptr, nullptr));
    EXPECT_TRUE(deaf);
    const std::vector<char> bytes(1 << 20);
    while (::send(end.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    EXPECT_EQ(::fcntl(end.get(), F_SETFL, ::fcntl(end.get(), F_GETFL) & ~O_NONBLOCK), 0);
    const struct linger on { .l_onoff = 1, .l_linger = seconds };
    EXPECT_EQ(::setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &on, sizeof(on)), 0);
  }
  UniqueFd end, deaf;
};

}  // namespace arcomm::support
