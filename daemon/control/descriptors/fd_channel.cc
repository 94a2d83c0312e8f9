#include "daemon/control/descriptors/fd_channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

constexpr int kMessagesPerTurn = 32;

FdMessage answer_to(const Status& status) {
  FdMessage answer;
  answer.kind = FdMessageKind::Answer;
  if (!status) {
    answer.code = static_cast<std::uint32_t>(status.error().code);
    answer.reason = static_cast<std::uint32_t>(status.error().reason);
  }
  return answer;
}

}  // namespace

FdChannel::~FdChannel() {
  for (const auto& [number, connection] : connections_) {
    parts_.loop.unwatch(connection.socket.get());
    if (connection.process) parts_.loop.unwatch(connection.process.get());
    parts_.loop.cancel(connection.hello_deadline);
  }
  for (auto& [number, connection] : connections_) {
    closer_.close_socket(connection.caller.peer.uid, std::move(connection.socket));
  }
}

void FdChannel::adopt(UniqueFd fd, Caller caller) {
  const ConnectionNumber number = caller.connection;
  const Status watched =
      parts_.loop.watch(fd.get(), EPOLLIN | EPOLLRDHUP,
                        [this, number](std::uint32_t events) { on_readable(number, events); });
  if (!watched) {
    closer_.close_socket(caller.peer.uid, std::move(fd));
    return parts_.released(caller.peer.uid);
  }
  const auto deadline =
      parts_.loop.after(kHelloTimeout, [this, number] { close(number, "no Hello came"); });
  connections_.emplace(number, Connection{caller, std::move(fd), {}, {}, deadline});
}

void FdChannel::forget(ConnectionNumber connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  found->second.session = {};
  close(connection, "session closed");
}

void FdChannel::on_readable(ConnectionNumber number, std::uint32_t events) {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    const auto found = connections_.find(number);
    if (found == connections_.end()) return;
    const uid_t peer = found->second.caller.peer.uid;
    if (closer_.full(peer)) {
      return close(number, "too many descriptors that its uid sent wait to be closed");
    }
    FdRequest request;
    const Result<FdReceive> received =
        receive_fd_request(found->second.socket.get(), request, closer_, peer);
    if (!received) return close(number, received.error().message);
    switch (*received) {
      case FdReceive::Message:
        if (!serve(number, found->second, std::move(request))) return;
        break;
      case FdReceive::HungUp:
        return close(number, "the client hung up without Detach");
      case FdReceive::Nothing:
        if ((events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) != 0) {
          close(number, "the client hung up without Detach");
        }
        return;
    }
  }
}

bool FdChannel::serve(ConnectionNumber number, Connection& connection, FdRequest request) {
  std::vector<UniqueFd> fds;
  FdMessage answer;
  SessionEntry* session = parts_.ledger.find(connection.session);
  if (request.message.kind == FdMessageKind::Hello) {
    const Status status = hello(number, connection, request.message);
    if (!status) {
      log::info_of(log::About::Calls, connection.caller.peer.uid, "Hello of pid {} refused: {}",
                   connection.caller.peer.pid, status.error().message);
    }
    answer = answer_to(status);
  } else if (session == nullptr) {
    answer =
        answer_to(error(ErrorCode::FailedPrecondition, Reason::UnknownHandle, "Hello comes first"));
  } else if (request.message.kind == FdMessageKind::Fetch) {
    Result<std::vector<UniqueFd>> taken =
        parts_.ledger.take_ticket(*session, request.message.ticket);
    answer = answer_to(taken ? Status() : Status(taken.error()));
    if (taken) fds = std::move(taken).value();
    answer.count = static_cast<std::uint32_t>(fds.size());
  } else if (request.fds.empty()) {
    answer = answer_to(error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                             "the offered descriptor is neither a memfd nor exported GPU memory"));
  } else {
    const Result<std::uint64_t> ticket =
        parts_.ledger.add_offer(*session, std::move(request.fds.front()));
    answer = answer_to(ticket ? Status() : Status(ticket.error()));
    if (ticket) answer.ticket = *ticket;
  }
  // What was not taken: the last close of gigabytes takes as long as touching them did.
  for (UniqueFd& refused : request.fds)
    closer_.close(connection.caller.peer.uid, std::move(refused));
  const Status sent = send_fd_answer(connection.socket.get(), answer, fds);
  // Released by another call meanwhile, and fetched by nobody: gigabytes may go with them.
  for (UniqueFd& handed_out : fds) closer_.close_handed_out(std::move(handed_out));
  if (!sent) close(number, sent.error().message);
  return sent.ok();
}

Status FdChannel::hello(ConnectionNumber number, Connection& connection, const FdMessage& message) {
  if (connection.session.valid()) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue,
                 "this connection belongs to session ", connection.session, " already");
  }
  const std::string_view token(reinterpret_cast<const char*>(message.token.data()),
                               message.token.size());
  Result<SessionEntry*> session =
      parts_.ledger.authorize(message.session, token, connection.caller.peer.uid);
  if (!session) return session.error();
  if ((*session)->bound_to != 0) {
    return error(ErrorCode::AlreadyExists, Reason::BadValue, "session ", (*session)->id,
                 " has a descriptor connection already");
  }
  ARC_RETURN_IF_ERROR(watch_process(number, connection));
  (*session)->bound_to = number;
  parts_.loop.cancel((*session)->hello_deadline);
  parts_.loop.cancel(connection.hello_deadline);
  connection.session = (*session)->id;
  return {};
}

// Without a pid that we can see (another PID namespace) or without pidfd_open the hang-up alone
// must do.
Status FdChannel::watch_process(ConnectionNumber number, Connection& connection) {
  const pid_t pid = connection.caller.peer.pid;
  if (pid <= 0) return {};
  connection.process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!connection.process) {
    if (errno != ESRCH) return {};
    return error(ErrorCode::Aborted, Reason::RemoteDied, "process ", pid,
                 " ended before its Hello");
  }
  return parts_.loop.watch(connection.process.get(), EPOLLIN, [this, number](std::uint32_t) {
    close(number, "its process ended without Detach");
  });
}

void FdChannel::close(ConnectionNumber number, const std::string& why) {
  auto node = connections_.extract(number);
  if (!node) return;
  Connection& connection = node.mapped();
  parts_.loop.unwatch(connection.socket.get());
  if (connection.process) parts_.loop.unwatch(connection.process.get());
  parts_.loop.cancel(connection.hello_deadline);
  // Messages that nobody read may hold descriptors, which go with the socket.
  ::shutdown(connection.socket.get(), SHUT_RDWR);
  closer_.close_socket(connection.caller.peer.uid, std::move(connection.socket));
  parts_.released(connection.caller.peer.uid);
  if (connection.session.valid()) parts_.ended(connection.session, why);
}

}  // namespace arcomm
