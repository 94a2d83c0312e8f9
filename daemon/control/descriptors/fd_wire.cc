#include "daemon/control/descriptors/fd_wire.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace arcomm {
namespace {

// As many as the kernel carries in one message (SCM_MAX_FD). It would close what does not fit on
// the thread that receives, and that close may block.
constexpr std::size_t kFdRoom = 253;

std::vector<UniqueFd> take_fds(msghdr& header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

Error protocol_error(const char* what, std::size_t value) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue, "descriptor socket: ", what, " (",
               value, ")");
}

// Memory: its close does not block. Nor does this question: what the kernel remembers of a file is
// enough, where fstat may ask a file system in user space, or on a machine that does not answer.
bool is_memory(int fd) {
  if (::fcntl(fd, F_GET_SEALS) >= 0) return true;
  // What a GPU driver exports is an open /dev/nvidiactl. O_PATH opens nothing: such a descriptor
  // may name a device that its file system made up.
  constexpr unsigned kNvidia = 195;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return false;
  struct statx info {};
  return ::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &info) == 0 &&
         S_ISCHR(info.stx_mode) && info.stx_rdev_major == kNvidia;
}

}  // namespace

Status check_fd_request(std::span<const std::byte> bytes, std::size_t fds) {
  if (bytes.size() != sizeof(FdMessage))
    return protocol_error("a message has the wrong length", bytes.size());
  FdMessage message;
  std::memcpy(&message, bytes.data(), sizeof(message));
  if (message.magic != kFdMagic)
    return protocol_error("a message has the wrong magic", message.magic);
  // Compared as a number: the wire may hold one that the enum does not name.
  const auto kind = static_cast<std::uint32_t>(message.kind);
  if (kind == static_cast<std::uint32_t>(FdMessageKind::Hello) ||
      kind == static_cast<std::uint32_t>(FdMessageKind::Fetch)) {
    if (fds != 0) return protocol_error("Hello and Fetch carry no descriptor", fds);
  } else if (kind == static_cast<std::uint32_t>(FdMessageKind::Offer)) {
    if (fds != 1) return protocol_error("Offer carries exactly one descriptor", fds);
  } else {
    return protocol_error("a message is of no known request kind", kind);
  }
  return {};
}

Result<FdReceive> receive_fd_request(int socket_fd, FdRequest& request, FdCloser& closer,
                                     uid_t peer) {
  std::byte bytes[sizeof(FdMessage) + 1];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdRoom)];
  iovec part{.iov_base = bytes, .iov_len = sizeof(bytes)};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return FdReceive::Nothing;
    return FdReceive::HungUp;
  }
  std::vector<UniqueFd> fds = take_fds(header);
  const std::size_t came = fds.size();
  const auto strangers = std::stable_partition(
      fds.begin(), fds.end(), [](const UniqueFd& fd) { return is_memory(fd.get()); });
  for (auto fd = strangers; fd != fds.end(); ++fd) closer.close(peer, std::move(*fd));
  fds.erase(strangers, fds.end());
  const auto close_all = [&] {
    for (UniqueFd& fd : fds) closer.close(peer, std::move(fd));
  };
  // A SEQPACKET end of file and an empty message look the same; neither is followed by anything we
  // would answer.
  if (got == 0) {
    close_all();
    return FdReceive::HungUp;
  }
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    close_all();
    return protocol_error("a message is too long or carries too many descriptors",
                          static_cast<std::size_t>(got));
  }
  if (Status checked = check_fd_request({bytes, static_cast<std::size_t>(got)}, came); !checked) {
    close_all();
    return checked.error();
  }
  std::memcpy(&request.message, bytes, sizeof(FdMessage));
  request.fds = std::move(fds);
  return FdReceive::Message;
}

Status send_fd_answer(int socket_fd, const FdMessage& answer, std::span<const UniqueFd> fds) {
  FdMessage message = answer;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)] = {};
  iovec part{.iov_base = &message, .iov_len = sizeof(message)};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fds.size() > kMaxFdsPerMessage)
    return protocol_error("an answer carries too many descriptors", fds.size());
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  const ssize_t sent = ::sendmsg(socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(sizeof(message))) {
    return error(ErrorCode::Unavailable, Reason::None,
                 "descriptor socket: cannot answer: ", std::strerror(errno));
  }
  return {};
}

}  // namespace arcomm
