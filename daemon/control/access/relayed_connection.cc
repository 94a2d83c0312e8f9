#include "daemon/control/access/relayed_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "daemon/control/refusal.h"

namespace arcomm {
namespace {

using Piece = std::array<std::byte, RelayedConnection::kPieceBytes>;

Error hung_up(const char* who) {
  return error(ErrorCode::Cancelled, Reason::None, who, " hung up");
}

bool may_go_on(int failure) {
  return failure == EAGAIN || failure == EINTR || failure == ENOBUFS || failure == ENOMEM;
}

// What waits, up to a piece. Cancelled: there will be no more. The first look takes nothing out of
// the socket, and the kernel says where it met a descriptor, and looks no further; the second takes
// what was seen and nothing else.
Result<std::size_t> read_without_descriptors(int client, Piece& piece) {
  iovec part{.iov_base = piece.data(), .iov_len = piece.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  const ssize_t seen = ::recvmsg(client, &header, MSG_PEEK | MSG_DONTWAIT);
  if (seen < 0 && may_go_on(errno)) return std::size_t{0};
  if ((header.msg_flags & MSG_CTRUNC) != 0 && seen >= 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "it sent descriptors where none are taken");
  }
  if (seen <= 0) return hung_up("the client");
  const ssize_t got = ::recv(client, piece.data(), static_cast<std::size_t>(seen), MSG_DONTWAIT);
  if (got < 0 && may_go_on(errno)) return std::size_t{0};
  if (got <= 0) return hung_up("the client");
  return static_cast<std::size_t>(got);
}

// A byte sent out of band waits in the queue beside the others and may hold a descriptor; read in
// line it is looked at as they are, where otherwise the next read would drop it unseen.
void take_in_line(int client) {
  const int on = 1;
  static_cast<void>(::setsockopt(client, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
}

}  // namespace

bool RelayedConnection::Flow::push(int to, std::span<const std::byte> bytes) {
  if (!is_blocked()) {
    const ssize_t sent = ::send(to, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && !may_go_on(errno)) return false;
    const auto gone = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    taken += gone;
    bytes = bytes.subspan(gone);
  }
  left.insert(left.end(), bytes.begin(), bytes.end());
  return true;
}

bool RelayedConnection::Flow::flush(int to) {
  while (is_blocked()) {
    const ssize_t sent =
        ::send(to, left.data() + at, left.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return may_go_on(errno);
    at += static_cast<std::size_t>(sent);
    taken += static_cast<std::uint64_t>(sent);
  }
  left = {};
  at = 0;
  return true;
}

RelayedConnection::RelayedConnection(Parts parts, UniqueFd client)
    : parts_(std::move(parts)), client_(std::move(client)) {}

RelayedConnection::~RelayedConnection() {
  take_sockets();
}

Status RelayedConnection::begin() {
  take_in_line(client_.get());
  client_events_ = EPOLLIN;
  ARC_RETURN_IF_ERROR(parts_.loop.watch(client_.get(), client_events_,
                                        [this](std::uint32_t events) { on_client(events); }));
  watch_debt();
  return {};
}

void RelayedConnection::flush() {
  if (!server_ || to_client_.is_blocked()) return;
  for (;;) {
    const Result<std::size_t> got = read_server();
    if (!got || *got == 0 || to_client_.is_blocked()) return;
  }
}

std::pair<UniqueFd, UniqueFd> RelayedConnection::take_sockets() {
  parts_.loop.cancel(deadline_);
  parts_.budget.end(paid_, parts_.uid, EventLoop::now_ns());
  if (client_) {
    parts_.loop.unwatch(client_.get());
    ::shutdown(client_.get(), SHUT_RDWR);
  }
  if (server_) {
    if (server_events_ != 0) parts_.loop.unwatch(server_.get());
    ::shutdown(server_.get(), SHUT_RDWR);
  }
  return {std::move(client_), std::move(server_)};
}

void RelayedConnection::on_client(std::uint32_t events) {
  Status status = send_client(events);
  if (status && (!server_ || !to_server_.is_blocked())) {
    status = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 ? read_client() : Status();
  } else if (status && (events & (EPOLLHUP | EPOLLERR)) != 0) {
    status = hung_up("the client");
  }
  settle(status);
}

void RelayedConnection::on_server(std::uint32_t events) {
  Status status;
  if ((events & EPOLLOUT) != 0 && !to_server_.flush(server_.get())) {
    to_server_ = {};  // nobody is there to read it; what was answered before is still sent
  }
  if (!to_client_.is_blocked()) {
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
      const Result<std::size_t> got = read_server();
      if (!got) status = got.error();
    }
  } else if ((events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) != 0) {
    // The last words wait there until the client has read what came before them.
    parts_.loop.unwatch(server_.get());
    server_events_ = 0;
  }
  settle(status);
}

Status RelayedConnection::send_client(std::uint32_t events) {
  if ((events & EPOLLOUT) == 0) return {};
  if (!to_client_.flush(client_.get())) return hung_up("the client");
  // Of a server that has gone: until its end.
  while (server_events_ == 0 && server_ && !to_client_.is_blocked()) {
    const Result<std::size_t> got = read_server();
    if (!got) return got.error();
    if (*got == 0) break;
  }
  return {};
}

Status RelayedConnection::read_client() {
  Piece piece;
  const Result<std::size_t> got = read_without_descriptors(client_.get(), piece);
  if (!got) return got.error();
  return *got == 0 ? Status() : forward({piece.data(), *got});
}

Status RelayedConnection::forward(std::span<const std::byte> bytes) {
  ARC_RETURN_IF_ERROR(frames_.read(bytes));
  ARC_RETURN_IF_ERROR(pay());
  if (!server_) {
    to_server_.left.insert(to_server_.left.end(), bytes.begin(), bytes.end());
    if (!frames_.prefaced()) return {};
    ARC_RETURN_IF_ERROR(open_server());
    if (!to_server_.flush(server_.get())) to_server_ = {};
    return {};
  }
  if (!to_server_.push(server_.get(), bytes)) to_server_ = {};  // its end is read from the socket
  return {};
}

Status RelayedConnection::pay() {
  const FrameCounts all{.calls = frames_.counts().calls,
                        .resets = frames_.counts().resets + server_frames_.counts().resets,
                        .others = frames_.counts().others};
  const FrameCounts came{.calls = all.calls - paid_for_.calls,
                         .resets = all.resets - paid_for_.resets,
                         .others = all.others - paid_for_.others};
  paid_for_ = all;
  ARC_RETURN_IF_ERROR(parts_.budget.keep_open(paid_, parts_.uid, calls_.count()));
  return parts_.budget.pay(paid_, parts_.uid, came, EventLoop::now_ns());
}

// Only between two frames of the server's: in the middle of one it would be nonsense.
void RelayedConnection::say_goodbye(const Error& why) {
  if (to_client_.is_blocked() || server_frames_.in_frame()) return;
  say_flooded(client_.get(), why.message, server_frames_.greeted());
}

Status RelayedConnection::open_server() {
  Result<UniqueFd> server = parts_.open_server();
  if (!server) return server.error();
  server_ = std::move(*server);
  server_events_ = EPOLLIN;
  return parts_.loop.watch(server_.get(), server_events_,
                           [this](std::uint32_t events) { on_server(events); });
}

Result<std::size_t> RelayedConnection::read_server() {
  Piece piece;
  const ssize_t got = ::recv(server_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got < 0 && may_go_on(errno)) return std::size_t{0};
  if (got <= 0) return hung_up("the server");
  static_cast<void>(server_frames_.read({piece.data(), static_cast<std::size_t>(got)}).ok());
  if (!to_client_.push(client_.get(), {piece.data(), static_cast<std::size_t>(got)}))
    return hung_up("the client");
  ARC_RETURN_IF_ERROR(pay());
  return static_cast<std::size_t>(got);
}

void RelayedConnection::settle(Status status) {
  if (!status) {
    const Error why = std::move(status).error();
    if (why.reason == Reason::Quota) say_goodbye(why);
    const auto ended = parts_.ended;  // outlives this
    return ended(why);
  }
  use_interest();
  watch_debt();
}

void RelayedConnection::use_interest() {
  const std::uint32_t of_client =
      (!server_ || !to_server_.is_blocked() ? std::uint32_t{EPOLLIN} : 0) |
      (to_client_.is_blocked() ? std::uint32_t{EPOLLOUT} : 0);
  if (of_client != client_events_) {
    parts_.loop.change(client_.get(), of_client);
    client_events_ = of_client;
  }
  if (server_events_ == 0) return;
  // Hang-ups are told besides: never 0, which stands for a server that is watched no more.
  const std::uint32_t of_server = EPOLLRDHUP |
                                  (!to_client_.is_blocked() ? std::uint32_t{EPOLLIN} : 0) |
                                  (to_server_.is_blocked() ? std::uint32_t{EPOLLOUT} : 0);
  if (of_server != server_events_) {
    parts_.loop.change(server_.get(), of_server);
    server_events_ = of_server;
  }
}

RelayedConnection::Debt RelayedConnection::debt() const {
  if (!frames_.greeted()) return {Owed::Greeting, 0};
  if (to_client_.is_blocked()) return {Owed::Reading, to_client_.taken};
  if (frames_.in_frame() && !to_server_.is_blocked()) return {Owed::Frame, frames_.frames()};
  return {};
}

void RelayedConnection::watch_debt() {
  const Debt now = debt();
  if (now == debt_) return;
  if (debt_.what != Owed::Nothing) parts_.loop.cancel(deadline_);
  debt_ = now;
  const auto give = [this](std::chrono::milliseconds time, const char* why) {
    deadline_ = parts_.loop.after(time, [this, time, why] {
      settle(error(ErrorCode::DeadlineExceeded, Reason::Timeout, why, " within ", time.count(),
                   " ms"));
    });
  };
  switch (now.what) {
    case Owed::Greeting:
      return give(parts_.deadlines.greeting, "it did not begin HTTP/2");
    case Owed::Frame:
      return give(parts_.deadlines.frame, "it did not end the frame that it had begun");
    case Owed::Reading:
      return give(parts_.deadlines.reading, "it read nothing of what it was sent");
    case Owed::Nothing:
      return;
  }
}

}  // namespace arcomm
