#include "daemon/control/peers/peer_gate.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "daemon/telemetry/log/log.h"
#include "transport/net/tcp/socket.h"

namespace arcomm {
namespace {

constexpr int kPeersPerTurn = 32;
constexpr std::chrono::milliseconds kPauseOfPeers{100};

// What a host's connections are counted under where users' are counted by their uids: a range of
// its own for each (daemon/telemetry/uid_range.h).
uid_t stand_in(const std::string& host) {
  return static_cast<uid_t>((std::hash<std::string>{}(host) % 0x7fff + 1) << 16);
}

}  // namespace

PeerGate::PeerGate(Parts parts)
    : parts_(std::move(parts)),
      relay_({.loop = parts_.loop,
              .closer = parts_.closer,
              .adopt_rpc = [this](UniqueFd fd) { parts_.adopt_rpc(std::move(fd)); },
              .ended =
                  [this](const Caller& caller, const Error&) {
                    trust(caller.connection);
                    names_.erase(caller.connection);
                    parts_.ended(caller.connection);
                  },
              .deadlines = parts_.deadlines,
              .name_of =
                  [this](const Caller& caller) {
                    const auto found = names_.find(caller.connection);
                    return found == names_.end() ? std::string("a daemon or stranger")
                                                 : found->second + " on the daemons' port";
                  }}) {}

Status PeerGate::open(UniqueFd listener) {
  listener_ = std::move(listener);
  return parts_.loop.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_some(); });
}

void PeerGate::close_listener() {
  if (!listener_) return;
  parts_.loop.unwatch(listener_.get());
  listener_.reset();
}

void PeerGate::close() {
  close_listener();
  for (auto& [connection, stranger] : strangers_) parts_.loop.cancel(stranger.limit);
  strangers_.clear();
  relay_.close();
  names_.clear();
}

void PeerGate::accept_some() {
  for (int i = 0; i < kPeersPerTurn && listener_; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      admit(std::move(fd));
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno == EAGAIN) return;
    // Out of descriptors: the waiting connection stays readable, so look away for a while.
    parts_.loop.change(listener_.get(), 0);
    parts_.loop.after(kPauseOfPeers, [this] {
      if (listener_) parts_.loop.change(listener_.get(), EPOLLIN);
    });
    return;
  }
}

bool PeerGate::make_room() {
  if (relay_.size() >= kMostPeerConnections) return false;
  if (strangers_.size() < kMostStrangers) return true;
  const auto oldest = strangers_.begin();
  if (Clock::now() < oldest->second.since + kStrangersFairTime) return false;
  turn_away(oldest->first, error(ErrorCode::ResourceExhausted, Reason::None,
                                 "there are many that have not shown the token"));
  return true;
}

void PeerGate::admit(UniqueFd fd) {
  const Result<net::Address> from = net::peer_address_of(fd.get());
  if (!from) return;  // gone again
  if (!make_room()) {
    ++turned_away_;
    return;
  }
  const int on = 1;
  static_cast<void>(::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  const Caller caller{.connection = next_connection_++,
                      .kind = SocketKind::Admin,
                      .peer = {.pid = 0, .uid = stand_in(from->host), .gid = 0}};
  names_.emplace(caller.connection, from->to_string());
  if (relay_.shuts_out(caller.peer.uid) || !relay_.adopt(std::move(fd), caller)) {
    names_.erase(caller.connection);
    ++turned_away_;
    return;
  }
  const ConnectionNumber connection = caller.connection;
  const EventLoop::TimerKey limit = parts_.loop.after(parts_.proof_limit, [this, connection] {
    turn_away(connection,
              error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                    "it did not show the token within ", parts_.proof_limit.count(), " ms"));
  });
  strangers_.emplace(connection, Stranger{Clock::now(), limit});
}

void PeerGate::turn_away(ConnectionNumber connection, const Error& why) {
  ++turned_away_;
  relay_.end(connection, why);
}

void PeerGate::trust(ConnectionNumber connection) {
  const auto found = strangers_.find(connection);
  if (found == strangers_.end()) return;
  parts_.loop.cancel(found->second.limit);
  strangers_.erase(found);
}

}  // namespace arcomm
