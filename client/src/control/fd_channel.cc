#include "client/src/control/fd_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "client/src/control/unix_socket.h"
#include "client/src/session/fork.h"

namespace arcomm::client {
namespace {

Error lost(const std::string& path, const char* what) {
  return error(ErrorCode::Unavailable, Reason::DaemonLost, "the descriptor socket ", path,
               " was closed by the daemon (", what, ")");
}

Error timed_out(const std::string& path) {
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the daemon did not answer on ", path,
               " in time");
}

// Nothing was sent: the session goes on.
Error too_late(const std::string& path) {
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout,
               "the call's time was over before all "
               "its memory was offered to the daemon on ",
               path,
               ": register it with "
               "arcMemRegister ahead of the first operation, or give the call more time");
}

}  // namespace

Result<std::unique_ptr<FdChannel>> FdChannel::open(const std::string& path,
                                                   const SessionKey& session, Deadline deadline) {
  Result<UniqueFd> socket = connect_unix(path, SOCK_SEQPACKET, deadline);
  if (!socket) return std::move(socket).error();
  std::unique_ptr<FdChannel> channel(new FdChannel(std::move(*socket), path));
  FdMessage hello;
  hello.kind = FdMessageKind::Hello;
  hello.session = session.id.bits();
  hello.token = session.token;
  Result<Answer> answer = channel->exchange(hello, -1, deadline);
  if (!answer) return std::move(answer).error();
  return channel;
}

FdChannel::FdChannel(UniqueFd socket, std::string path)
    : socket_(std::move(socket)), path_(std::move(path)) {
  close_in_forked_child(socket_.get());
}

FdChannel::~FdChannel() {
  keep_in_forked_child(socket_.get());
}

Result<std::vector<UniqueFd>> FdChannel::fetch(std::uint64_t ticket, std::size_t count,
                                               Deadline deadline) {
  FdMessage request;
  request.kind = FdMessageKind::Fetch;
  request.ticket = ticket;
  Result<Answer> answer = exchange(request, -1, deadline);
  if (!answer) return std::move(answer).error();
  if (answer->descriptors.size() != count) {
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon sent ",
                 answer->descriptors.size(), " descriptors where ", count, " belong");
  }
  return std::move(answer->descriptors);
}

Result<std::uint64_t> FdChannel::offer(int fd, Deadline deadline) {
  // A buffer may take hundreds of offers under its operation's own deadline, and one that is not
  // answered in time ends the session: none begins that could not be.
  if (deadline.passed()) return too_late(path_);
  FdMessage request;
  request.kind = FdMessageKind::Offer;
  Result<Answer> answer = exchange(request, fd, deadline.plus(kGuard));
  if (!answer) return std::move(answer).error();
  return answer->message.ticket;
}

bool FdChannel::hung_up() const {
  pollfd look{socket_.get(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0 &&
         (look.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
}

Result<FdChannel::Answer> FdChannel::exchange(const FdMessage& request, int attached_fd,
                                              Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return timed_out(path_);
  ARC_RETURN_IF_ERROR(send(request, attached_fd, deadline));
  Result<Answer> answer = receive(deadline);
  if (!answer) {
    // A late answer would be taken for the next one's: this socket, and so the session, ends here.
    ::shutdown(socket_.get(), SHUT_RDWR);
    return answer;
  }
  if (answer->message.code != 0) {
    return error(error_code_from(answer->message.code), reason_from(answer->message.reason),
                 "the daemon refused a descriptor request on ", path_,
                 reason_from(answer->message.reason) == Reason::Quota
                     ? ": too much memory of this process or user waits to be registered; try again"
                     : "");
  }
  return answer;
}

Status FdChannel::send(const FdMessage& request, int attached_fd, Deadline deadline) {
  FdMessage copy = request;
  iovec part{&copy, sizeof(copy)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (attached_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(item), &attached_fd, sizeof(int));
  }
  while (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EAGAIN) {
      if (!wait_for_socket(socket_.get(), POLLOUT, deadline)) return timed_out(path_);
    } else if (errno != EINTR) {
      return lost(path_, std::strerror(errno));
    }
  }
  return {};
}

Result<FdChannel::Answer> FdChannel::receive(Deadline deadline) {
  Answer answer;
  iovec part{&answer.message, sizeof(answer.message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t bytes = 0;
  while ((bytes = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EAGAIN) {
      if (!wait_for_socket(socket_.get(), POLLIN, deadline)) return timed_out(path_);
    } else if (errno != EINTR) {
      return lost(path_, std::strerror(errno));
    }
  }
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr;
       item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
      answer.descriptors.emplace_back(fd);
    }
  }
  if (bytes == 0) return lost(path_, "end of file");
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return error(
        ErrorCode::ResourceExhausted, Reason::OutOfMemory,
        "no descriptor is left in this process for what the daemon sends: raise ulimit -n");
  }
  if (bytes != sizeof(FdMessage) || answer.message.magic != kFdMagic ||
      answer.message.kind != FdMessageKind::Answer) {
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon's answer on ", path_,
                 " is not a descriptor message");
  }
  return answer;
}

}  // namespace arcomm::client
