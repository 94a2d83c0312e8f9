#include "daemon/control/access/relay.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

constexpr std::string_view kPeerPrefix = "fd:";

}  // namespace

Relay::Relay(Parts parts) : parts_(std::move(parts)) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  lowest_number_ = most / 2;
  highest_number_ = std::max(lowest_number_, most - 64);
  next_number_ = lowest_number_;
}

bool Relay::adopt(UniqueFd client, const Caller& caller) {
  const ConnectionNumber number = caller.connection;
  auto connection = std::make_unique<RelayedConnection>(
      RelayedConnection::Parts{.loop = parts_.loop,
                               .deadlines = parts_.deadlines,
                               .budget = budget_,
                               .uid = caller.peer.uid,
                               .open_server = [this, number] { return open_server(number); },
                               .ended = [this, number](const Error& why) { end(number, why); }},
      std::move(client));
  const Status begun = connection->begin();
  if (!begun) {
    parts_.closer.close_socket(caller.peer.uid, connection->take_sockets().first);
    tell_closed(caller, begun.error());
    return false;
  }
  connections_.emplace(number, Entry{caller, -1, std::move(connection)});
  return true;
}

void Relay::tell_closed(const Caller& caller, const Error& why) const {
  const std::string name = parts_.name_of ? parts_.name_of(caller)
                                          : "pid " + std::to_string(caller.peer.pid) + " uid " +
                                                std::to_string(caller.peer.uid);
  log::info_of(log::About::Sessions, caller.peer.uid, "connection of {} closed: {}", name,
               why.message);
}

Result<UniqueFd> Relay::open_server(ConnectionNumber connection) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "no descriptor is left: ", std::strerror(errno));
  }
  UniqueFd ours(ends[0]);
  UniqueFd low(ends[1]);
  UniqueFd for_rpc = high_duplicate(low.get());
  if (!for_rpc) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "no descriptor is left: ", std::strerror(errno));
  }
  const int number = for_rpc.get();
  // gRPC has closed an earlier one of this number, or it could not be dealt out again.
  if (const auto earlier = by_number_.find(number); earlier != by_number_.end())
    end(earlier->second, error(ErrorCode::Cancelled, Reason::None, "the server hung up"));
  by_number_[number] = connection;
  connections_.at(connection).number = number;
  parts_.adopt_rpc(std::move(for_rpc));
  return ours;
}

UniqueFd Relay::high_duplicate(int fd) {
  const int duplicate = ::fcntl(fd, F_DUPFD_CLOEXEC, next_number_);
  if (duplicate >= 0) {
    next_number_ = duplicate >= highest_number_ ? lowest_number_ : duplicate + 1;
    return UniqueFd(duplicate);
  }
  next_number_ = lowest_number_;
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, lowest_number_));
}

void Relay::end(ConnectionNumber connection, const Error& why) {
  auto node = connections_.extract(connection);
  if (!node) return;
  const Entry& entry = node.mapped();
  const Caller caller = entry.caller;
  if (entry.number >= 0) by_number_.erase(entry.number);
  auto [client, server] = entry.connection->take_sockets();  // nobody sends descriptors to ours
  parts_.closer.close_socket(caller.peer.uid, std::move(client));
  if (why.code != ErrorCode::Cancelled && why.reason != Reason::Quota) tell_closed(caller, why);
  parts_.ended(caller, why);
}

std::optional<Caller> Relay::find(const std::string& grpc_peer) const {
  if (!grpc_peer.starts_with(kPeerPrefix)) return std::nullopt;
  int number = -1;
  const char* first = grpc_peer.data() + kPeerPrefix.size();
  const auto [end, failure] = std::from_chars(first, grpc_peer.data() + grpc_peer.size(), number);
  if (failure != std::errc{} || end != grpc_peer.data() + grpc_peer.size()) return std::nullopt;
  const auto found = by_number_.find(number);
  if (found == by_number_.end()) return std::nullopt;
  return connections_.at(found->second).caller;
}

bool Relay::shuts_out(uid_t uid) const {
  return budget_.shuts_out(uid, EventLoop::now_ns());
}

void Relay::close() {
  for (auto& [number, entry] : connections_) {
    entry.connection->flush();
    auto [client, server] = entry.connection->take_sockets();
    parts_.closer.close_socket(entry.caller.peer.uid, std::move(client));
  }
  connections_.clear();
  by_number_.clear();
}

}  // namespace arcomm
