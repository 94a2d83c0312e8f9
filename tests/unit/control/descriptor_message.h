// One message with one descriptor over a unix socket, as a stranger may send it.
#pragma once

#include <sys/socket.h>

#include <cstring>

#include "proto/fd_message.h"

namespace arcomm::test {

inline bool send_descriptor(int socket_fd, int fd, FdMessageKind kind = FdMessageKind::Offer) {
  FdMessage message;
  message.kind = kind;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{.iov_base = &message, .iov_len = sizeof(message)};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  return ::sendmsg(socket_fd, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(message));
}

}  // namespace arcomm::test
