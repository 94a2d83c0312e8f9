#include "daemon/control/access/connection_gate.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "daemon/control/refusal.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

constexpr int kAcceptsPerTurn = 32;
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};

// Nobody takes descriptors there, and the relay ends a connection that brings some. Linux 6.16 can
// turn them away earlier, while they are sent; connections inherit that.
void refuse_descriptors(int listener) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS, newer than the headers
  const int off = 0;
  static_cast<void>(::setsockopt(listener, SOL_SOCKET, kPassRights, &off, sizeof(off)));
}

}  // namespace

ConnectionGate::ConnectionGate(Parts parts)
    : parts_(std::move(parts)),
      relay_({.loop = parts_.loop,
              .closer = parts_.closer,
              .adopt_rpc = [this](UniqueFd fd) { parts_.adopt_rpc(std::move(fd)); },
              .ended =
                  [this](const Caller& caller, const Error& why) {
                    if (why.reason == Reason::Quota) tell_flood(caller, why);
                    release(caller.peer.uid);
                    parts_.hung_up(caller.connection);
                  },
              .deadlines = parts_.deadlines}),
      shares_(parts_.connections) {
  use_connection_limits(parts_.connections);
}

ConnectionGate::~ConnectionGate() {
  close();
}

Status ConnectionGate::open(std::vector<ListeningSocket> sockets) {
  listeners_ = std::move(sockets);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (listeners_[i].kind() != SocketKind::Descriptor) refuse_descriptors(listeners_[i].fd());
    ARC_RETURN_IF_ERROR(parts_.loop.watch(listeners_[i].fd(), EPOLLIN,
                                          [this, i](std::uint32_t) { accept_some(i); }));
  }
  return {};
}

void ConnectionGate::close_listeners() {
  // What was never accepted goes with them, and what strangers have put into that.
  for (ListeningSocket& listener : listeners_) {
    parts_.loop.unwatch(listener.fd());
    parts_.closer.close(listener.retire());
  }
  listeners_.clear();
}

void ConnectionGate::close() {
  close_listeners();
  relay_.close();
}

void ConnectionGate::accept_some(std::size_t listener) {
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
void ConnectionGate::pause(std::size_t listener) {
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

void ConnectionGate::admit(SocketKind kind, UniqueFd fd) {
  const Result<PeerCredentials> peer = read_peer_credentials(fd.get());
  if (!peer) return;
  const std::string excess = find_excess(kind, *peer);
  const std::optional<gid_t> group =
      kind == SocketKind::Admin ? parts_.groups.admins : parts_.groups.members;
  if (!excess.empty() || !may_connect(fd.get(), *peer, group, parts_.groups.names))
    return turn_away(kind, std::move(fd), *peer, excess);
  const Caller caller{next_connection_++, kind, *peer};
  shares_.take(peer->uid);
  parts_.metrics.node(NodeResource::Connections).used.add(1);
  if (kind == SocketKind::Descriptor) return parts_.adopt_descriptors(std::move(fd), caller);
  if (!relay_.adopt(std::move(fd), caller)) release(peer->uid);
}

std::string ConnectionGate::find_excess(SocketKind kind, const PeerCredentials& peer) const {
  if (kind != SocketKind::Descriptor && !is_operator(peer, parts_.groups.names) &&
      relay_.shuts_out(peer.uid))
    return "this uid and its like brought too many resets and frames of no call: try again later";
  switch (shares_.ask(peer.uid)) {
    case FairShare::Answer::Yes:
      return {};
    case FairShare::Answer::UidHasMost:
      return "too many connections of this uid: it has " +
             std::to_string(shares_.of_uid(peer.uid)) + " of " +
             std::to_string(shares_.limits().per_uid);
    case FairShare::Answer::NodeIsShort:
      // Whoever is to look after a node that is short must get in.
      if (is_operator(peer, parts_.groups.names)) return {};
      return "the node has " + std::to_string(shares_.total()) + " of " +
             std::to_string(shares_.limits().node) +
             " connections, and this uid and its like have their share (quota.node_connections)";
  }
  return {};
}

void ConnectionGate::turn_away(SocketKind kind, UniqueFd fd, const PeerCredentials& peer,
                               const std::string& excess) {
  const std::string& group =
      kind == SocketKind::Admin ? parts_.groups.names.admin_group : parts_.groups.names.group;
  if (excess.empty() && kind != SocketKind::Descriptor) {
    say_refused(fd.get(), "uid " + std::to_string(peer.uid) + " may not use " +
                              std::string(file_name_of(kind)) + ": ask to be added to group " +
                              group + (peer.uid == 0 ? " (access.trust_root is false)" : ""));
  }
  parts_.metrics.connections_refused.add();
  log::audit_of(peer.uid, "connection refused",
                {{"socket", std::string(file_name_of(kind))},
                 {"pid", std::to_string(peer.pid)},
                 {"uid", std::to_string(peer.uid)},
                 {"gid", std::to_string(peer.gid)},
                 {"why", excess.empty() ? "not in group " + group : excess}});
  ::shutdown(fd.get(), SHUT_RDWR);
  parts_.closer.close_socket(peer.uid, std::move(fd));
}

void ConnectionGate::tell_flood(const Caller& caller, const Error& why) {
  log::audit_of(caller.peer.uid, "connection ended",
                {{"socket", std::string(file_name_of(caller.kind))},
                 {"pid", std::to_string(caller.peer.pid)},
                 {"uid", std::to_string(caller.peer.uid)},
                 {"why", why.message}});
  parts_.metrics.connections_flooding.add();
}

void ConnectionGate::release(uid_t uid) {
  shares_.give_back(uid);
  parts_.metrics.node(NodeResource::Connections).used.add(-1);
}

void ConnectionGate::use_connection_limits(FairShare::Limits limits) {
  shares_.use_limits(limits);
  parts_.metrics.node(NodeResource::Connections).limit.set(static_cast<std::int64_t>(limits.node));
}

void ConnectionGate::use_groups(AccessGroups groups) {
  if (parts_.groups == groups) return;
  parts_.groups = std::move(groups);
  std::vector<std::string> warnings;
  for (const ListeningSocket& listener : listeners_) listener.use_groups(parts_.groups, warnings);
  for (const std::string& warning : warnings) log::warn("{}", warning);
}

}  // namespace arcomm
