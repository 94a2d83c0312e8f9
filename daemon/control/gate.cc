#include "daemon/control/gate.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "daemon/control/peer_credentials.h"
#include "daemon/control/refusal.h"
#include "daemon/telemetry/log.h"
#include "daemon/telemetry/metrics.h"

namespace arcomm {
namespace {

constexpr int kAcceptsPerTurn = 32;
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
constexpr std::string_view kPeerPrefix = "fd:";

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
    ARC_RETURN_IF_ERROR(parts_.loop.watch(listeners_[i].fd(), EPOLLIN,
                                          [this, i](std::uint32_t) { accept_some(i); }));
  }
  return {};
}

void Gate::close() {
  for (const ListeningSocket& listener : listeners_) parts_.loop.unwatch(listener.fd());
  listeners_.clear();
  for (const auto& [number, connection] : connections_)
    parts_.loop.unwatch(connection.watched.get());
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
  const std::string& group =
      kind == SocketKind::Admin ? parts_.access.admin_group : parts_.access.group;
  const bool too_many = per_uid_[peer->uid] >= parts_.connections_per_uid;
  if (too_many || !may_connect(*peer, group)) {
    if (per_uid_[peer->uid] == 0) per_uid_.erase(peer->uid);
    if (!too_many && kind != SocketKind::Descriptor) {
      say_refused(fd.get(), "uid " + std::to_string(peer->uid) + " may not use " +
                                std::string(file_name_of(kind)) + ": ask to be added to group " +
                                group);
    }
    parts_.metrics.connections_refused.add();
    log::audit("connection refused",
               {{"socket", std::string(file_name_of(kind))},
                {"pid", std::to_string(peer->pid)},
                {"uid", std::to_string(peer->uid)},
                {"gid", std::to_string(peer->gid)},
                {"why", too_many ? "too many connections of this uid" : "not in group " + group}});
    return;
  }
  const Caller caller{next_connection_++, kind, *peer};
  ++per_uid_[peer->uid];
  if (kind == SocketKind::Descriptor) return parts_.adopt_descriptors(std::move(fd), caller);

  UniqueFd for_rpc = high_duplicate(fd.get());
  if (!for_rpc) {
    log::warn("connection of pid {} closed: no descriptor left: {}", peer->pid,
              std::strerror(errno));
    return release(peer->uid);
  }
  const int number = for_rpc.get();
  drop(number);  // gRPC closed an earlier one of this number, or it could not be dealt out again
  const Status watched = parts_.loop.watch(fd.get(), EPOLLRDHUP | EPOLLHUP,
                                           [this, number](std::uint32_t) { drop(number); });
  if (!watched) return release(peer->uid);
  connections_[number] = Connection{caller, std::move(fd)};
  parts_.adopt_rpc(std::move(for_rpc));
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
  const Connection connection = std::move(found->second);
  connections_.erase(found);
  parts_.loop.unwatch(connection.watched.get());
  release(connection.caller.peer.uid);
  parts_.hung_up(connection.caller.connection);
}

void Gate::release(uid_t uid) {
  const auto found = per_uid_.find(uid);
  if (found != per_uid_.end() && --found->second == 0) per_uid_.erase(found);
}

void Gate::use_access(const Settings::Access& access) {
  if (parts_.access == access) return;
  parts_.access = access;
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
