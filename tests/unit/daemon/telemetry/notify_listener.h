// What systemd would be: a datagram socket that is told things. While it lives, NOTIFY_SOCKET names
// it. One at a time, on the test's thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "proto/unique_fd.h"

namespace arcomm {

class NotifyListener {
 public:
  explicit NotifyListener(const std::string& address)
      : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, address.data(), address.size());
    if (address.front() == '@') name.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&name), length), 0);
    ::setenv("NOTIFY_SOCKET", address.c_str(), 1);
  }
  ~NotifyListener() { ::unsetenv("NOTIFY_SOCKET"); }
  std::string heard(UniqueFd* stored = nullptr) const {
    char text[512] = {};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{.iov_base = text, .iov_len = sizeof(text) - 1};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (stored != nullptr) {
      header.msg_control = control;
      header.msg_controllen = sizeof(control);
    }
    const ssize_t got = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const cmsghdr* rights = stored == nullptr ? nullptr : CMSG_FIRSTHDR(&header);
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
      stored->reset(fd);
    }
    return got < 0 ? "(nothing)" : std::string(text, static_cast<std::size_t>(got));
  }

 private:
  UniqueFd fd_;
};

}  // namespace arcomm
