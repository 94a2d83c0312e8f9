#include "tests/support/sessions/descriptor_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace arcomm::support {

Result<DescriptorSocket> DescriptorSocket::connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return error(ErrorCode::Unavailable, Reason::NotRunning, "cannot connect to ", path);
  return DescriptorSocket(std::move(fd));
}

Result<FdMessage> DescriptorSocket::ask(const FdMessage& request, int offered,
                                        std::vector<UniqueFd>* received) const {
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)] = {};
  FdMessage body = request;
  iovec part{&body, sizeof(body)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (offered >= 0) {
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &offered, sizeof(int));
  }
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) {
    return error(ErrorCode::Unavailable, Reason::DaemonLost,
                 "descriptor socket: ", std::strerror(errno));
  }
  pollfd waiting{socket_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, 10000) <= 0)
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "no answer");
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got != static_cast<ssize_t>(sizeof(body))) {
    return error(ErrorCode::Unavailable, Reason::DaemonLost, "descriptor socket closed after ", got,
                 " bytes");
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      if (received != nullptr) received->emplace_back(fd);
      if (received == nullptr) ::close(fd);
    }
  }
  if (body.code != 0) {
    return error(error_code_from(body.code), reason_from(body.reason),
                 "the descriptor socket refused");
  }
  return body;
}

Result<std::vector<UniqueFd>> DescriptorSocket::fetch(std::uint64_t ticket) const {
  FdMessage request;
  request.kind = FdMessageKind::Fetch;
  request.ticket = ticket;
  std::vector<UniqueFd> fds;
  Result<FdMessage> answer = ask(request, -1, &fds);
  if (!answer) return std::move(answer).error();
  return fds;
}

}  // namespace arcomm::support
