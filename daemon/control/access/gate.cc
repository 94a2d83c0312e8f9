#include "daemon/control/access/gate.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "daemon/control/refusal.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

constexpr int kAcceptsPerTurn = 32;
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
constexpr std::string_view kPeerPrefix = "fd:";

// gRPC takes no descriptors, but the kernel hands them to whoever reads, who then closes them, and
// a close may block for as long as its sender likes. Linux 6.16 can turn them away; connections
// inherit that.
void refuse_descriptors(int listener) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS, newer than the headers
  const int off = 0;
  static_cast<void>(::setsockopt(listener, SOL_SOCKET, kPassRights, &off, sizeof(off)));
}

}  // namespace

Gate::Gate(Parts parts) : parts_(std::move(parts)) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  lowest_number_ = most / 2;
  highest_number_ = std::max(lowest_number_, most - 64);
  next_number_ = lowest_number_;
}

Gate::~Gate() {
  close();
}

Status Gate::open(std::vector<ListeningSocket> sockets) {
  listeners_ = std::move(sockets);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (listeners_[i].kind() != SocketKind::Descriptor) refuse_descriptors(listeners_[i].fd());
    ARC_RETURN_IF_ERROR(parts_.loop.watch(listeners_[i].fd(), EPOLLIN,
                                          [this, i](std::uint32_t) { accept_some(i); }));
  }
  return {};
}

void Gate::close_listeners() {
  for (const ListeningSocket& listener : listeners_) parts_.loop.unwatch(listener.fd());
  listeners_.clear();
}

void Gate::close() {
  close_listeners();
  for (auto& [number, connection] : connections_) {
    parts_.loop.unwatch(connection.watched.get());
    parts_.closer.close_socket(connection.caller.peer.uid, std::move(connection.watched));
  }
  connections_.clear();
}

void Gate::accept_some(std::size_t listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd fd(
        ::accept4(listeners_[listener].fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      admit(listeners_[listener].kind(), std::move(fd));
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno != EAGAIN) pause(listener);
    return;
  }
}

// Out of descriptors or memory: the waiting connection stays readable, so look away for a while
// instead of spinning.
void Gate::pause(std::size_t listener) {
  log::warn("no descriptor or memory to accept on {}: {}; trying again in {} ms",
            listeners_[listener].path(), std::strerror(errno), kPauseWithoutDescriptors.count());
  parts_.loop.unwatch(listeners_[listener].fd());
  parts_.loop.after(kPauseWithoutDescriptors, [this, listener] {
    if (listener >= listeners_.size()) return;  // closed meanwhile
    const Status watched =
        parts_.loop.watch(listeners_[listener].fd(), EPOLLIN,
                          [this, listener](std::uint32_t) { accept_some(listener); });
    if (!watched)
      log::error("{} is deaf: {}", listeners_[listener].path(), watched.error().message);
  });
}

void Gate::admit(SocketKind kind, UniqueFd fd) {
  const Result<PeerCredentials> peer = read_peer_credentials(fd.get());
  if (!peer) return;
  const auto open = per_uid_.find(peer->uid);
  const bool too_many = (open == per_uid_.end() ? 0 : open->second) >= parts_.connections_per_uid;
  const std::optional<gid_t> group =
      kind == SocketKind::Admin ? parts_.groups.admins : parts_.groups.members;
  if (too_many || !may_connect(fd.get(), *peer, group)) {
    return turn_away(kind, std::move(fd), *peer, too_many);
  }
  const Caller caller{next_connection_++, kind, *peer};
  ++per_uid_[peer->uid];
  if (kind == SocketKind::Descriptor) return parts_.adopt_descriptors(std::move(fd), caller);

  UniqueFd for_rpc = high_duplicate(fd.get());
  if (!for_rpc) {
    log::warn("connection of pid {} closed: no descriptor left: {}", peer->pid,
              std::strerror(errno));
    parts_.closer.close_socket(peer->uid, std::move(fd));
    return release(peer->uid);
  }
  const int number = for_rpc.get();
  drop(number);  // gRPC closed an earlier one of this number, or it could not be dealt out again
  const Status watched = parts_.loop.watch(fd.get(), EPOLLRDHUP | EPOLLHUP,
                                           [this, number](std::uint32_t) { drop(number); });
  if (!watched) {
    for_rpc.reset();
    parts_.closer.close_socket(peer->uid, std::move(fd));
    return release(peer->uid);
  }
  connections_[number] = Connection{caller, std::move(fd)};
  parts_.adopt_rpc(std::move(for_rpc));
}

void Gate::turn_away(SocketKind kind, UniqueFd fd, const PeerCredentials& peer, bool too_many) {
  const std::string& group =
      kind == SocketKind::Admin ? parts_.groups.names.admin_group : parts_.groups.names.group;
  if (!too_many && kind != SocketKind::Descriptor) {
    say_refused(fd.get(), "uid " + std::to_string(peer.uid) + " may not use " +
                              std::string(file_name_of(kind)) + ": ask to be added to group " +
                              group);
  }
  parts_.metrics.connections_refused.add();
  log::audit("connection refused",
             {{"socket", std::string(file_name_of(kind))},
              {"pid", std::to_string(peer.pid)},
              {"uid", std::to_string(peer.uid)},
              {"gid", std::to_string(peer.gid)},
              {"why", too_many ? "too many connections of this uid" : "not in group " + group}});
  ::shutdown(fd.get(), SHUT_RDWR);
  parts_.closer.close_socket(peer.uid, std::move(fd));
}

UniqueFd Gate::high_duplicate(int fd) {
  const int duplicate = ::fcntl(fd, F_DUPFD_CLOEXEC, next_number_);
  if (duplicate >= 0) {
    next_number_ = duplicate >= highest_number_ ? lowest_number_ : duplicate + 1;
    return UniqueFd(duplicate);
  }
  next_number_ = lowest_number_;
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, lowest_number_));
}

void Gate::drop(int rpc_fd) {
  const auto found = connections_.find(rpc_fd);
  if (found == connections_.end()) return;
  Connection connection = std::move(found->second);
  connections_.erase(found);
  parts_.loop.unwatch(connection.watched.get());
  // gRPC may have left unread what came with descriptors, and closed its own before.
  parts_.closer.close_socket(connection.caller.peer.uid, std::move(connection.watched));
  release(connection.caller.peer.uid);
  parts_.hung_up(connection.caller.connection);
}

void Gate::release(uid_t uid) {
  const auto found = per_uid_.find(uid);
  if (found != per_uid_.end() && --found->second == 0) per_uid_.erase(found);
}

void Gate::use_groups(AccessGroups groups) {
  if (parts_.groups == groups) return;
  parts_.groups = std::move(groups);
  const Settings::Access& access = parts_.groups.names;
  std::vector<std::string> warnings;
  for (const ListeningSocket& listener : listeners_) {
    listener.use_group(listener.kind() == SocketKind::Admin ? access.admin_group : access.group,
                       warnings);
  }
  for (const std::string& warning : warnings) log::warn("{}", warning);
}

std::optional<Caller> Gate::find(const std::string& grpc_peer) const {
  if (!grpc_peer.starts_with(kPeerPrefix)) return std::nullopt;
  int number = -1;
  const char* first = grpc_peer.data() + kPeerPrefix.size();
  const auto [end, failure] = std::from_chars(first, grpc_peer.data() + grpc_peer.size(), number);
  if (failure != std::errc{} || end != grpc_peer.data() + grpc_peer.size()) return std::nullopt;
  const auto found = connections_.find(number);
  return found == connections_.end() ? std::nullopt : std::optional(found->second.caller);
}

}  // namespace arcomm
