// Descriptors over a unix socket, one at a time, as a stranger may send them.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstring>

#include "proto/fd_message.h"

namespace arcomm::support {

// False with errno where not all of it left.
inline bool send_with_descriptor(int socket_fd, const void* data, std::size_t bytes, int fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{.iov_base = const_cast<void*>(data), .iov_len = bytes};
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
  return ::sendmsg(socket_fd, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

inline bool send_descriptor(int socket_fd, int fd, FdMessageKind kind = FdMessageKind::Offer) {
  FdMessage message;
  message.kind = kind;
  return send_with_descriptor(socket_fd, &message, sizeof(message), fd);
}

}  // namespace arcomm::support
