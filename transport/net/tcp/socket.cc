#include "transport/net/tcp/socket.h"

#include <linux/tcp.h>  // whose tcp_info is longer than that of <netinet/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "transport/net/addresses/subnet.h"

namespace arcomm::net {
namespace {

constexpr std::size_t kMostBufferBytes = std::size_t{1} << 29;

struct FreeAddress {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using AddressInfo = std::unique_ptr<addrinfo, FreeAddress>;

Error failed(std::string_view what, const Address& address, int number) {
  const bool is_short =
      number == EMFILE || number == ENFILE || number == ENOMEM || number == ENOBUFS;
  return error(is_short ? ErrorCode::ResourceExhausted : ErrorCode::Unavailable,
               is_short ? Reason::OutOfMemory : Reason::None, "cannot ", what, ' ',
               address.to_string(), ": ", text_of_errno(number));
}

Result<AddressInfo> resolve(const Address& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (problem != 0)
    return error(ErrorCode::InvalidArgument, Reason::BadValue, '"', address.to_string(),
                 "\" is no address: ", gai_strerror(problem));
  return AddressInfo(found);
}

Result<UniqueFd> open_socket(const Address& address, const addrinfo& info) {
  UniqueFd socket(::socket(info.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return failed("open a socket for", address, errno);
  return socket;
}

Result<Address> name_of_socket(int descriptor, int (*ask)(int, sockaddr*, socklen_t*) noexcept) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  auto* raw = reinterpret_cast<sockaddr*>(&name);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (ask(descriptor, raw, &size) != 0 ||
      getnameinfo(raw, size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return error(ErrorCode::Unavailable, Reason::None,
                 "a socket does not tell its address: ", text_of_errno(errno));
  return Address{host.data(), static_cast<std::uint16_t>(std::stoi(port.data()))};
}

Status set(int descriptor, int level, int option, int value, std::string_view name) {
  if (setsockopt(descriptor, level, option, &value, sizeof value) == 0) return {};
  return error(ErrorCode::Internal, Reason::None, "cannot set ", name,
               " of a socket: ", text_of_errno(errno));
}

}  // namespace

std::string text_of_errno(int number) {
  return std::generic_category().message(number) + " (errno " + std::to_string(number) + ')';
}

Result<UniqueFd> listen_on(const Address& address) {
  auto info = resolve(address);
  if (!info) return std::move(info).error();
  auto socket = open_socket(address, **info);
  if (!socket) return socket;
  // The port of a daemon that has just ended is not held against the next one.
  ARC_RETURN_IF_ERROR(set(socket->get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  if (bind(socket->get(), (*info)->ai_addr, (*info)->ai_addrlen) != 0)
    return failed("listen on", address, errno);
  if (listen(socket->get(), SOMAXCONN) != 0) return failed("listen on", address, errno);
  return socket;
}

Result<Address> address_of(int descriptor) {
  return name_of_socket(descriptor, getsockname);
}

Result<Address> peer_address_of(int descriptor) {
  return name_of_socket(descriptor, getpeername);
}

Result<std::string> source_towards(const std::string& peer, const std::string& own_host) {
  const Address to_peer{peer, 9};  // any port: UDP connects without a packet
  auto to = resolve(to_peer);
  if (!to) return std::move(to).error();
  const UniqueFd socket(::socket((*to)->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return failed("open a socket for", to_peer, errno);
  if (!is_any_address(own_host) && ip_family(own_host) == ip_family(peer)) {
    auto from = resolve({own_host, 0});
    if (!from) return std::move(from).error();
    if (bind(socket.get(), (*from)->ai_addr, (*from)->ai_addrlen) != 0)
      return failed("use the interface of", {own_host, 0}, errno);
  }
  if (::connect(socket.get(), (*to)->ai_addr, (*to)->ai_addrlen) != 0)
    return error(ErrorCode::Unavailable, Reason::None, "no route to ", peer, ": ",
                 text_of_errno(errno));
  auto source = address_of(socket.get());
  if (!source) return std::move(source).error();
  return std::move(source->host);
}

Result<UniqueFd> connect_from(const Address& local, const Address& peer) {
  auto to = resolve(peer);
  if (!to) return std::move(to).error();
  auto from = resolve({local.host, 0});
  if (!from) return std::move(from).error();
  auto socket = open_socket(peer, **to);
  if (!socket) return socket;
  // Otherwise many connections from one address would use up its ports for all peers together.
  ARC_RETURN_IF_ERROR(
      set(socket->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, "IP_BIND_ADDRESS_NO_PORT"));
  if (bind(socket->get(), (*from)->ai_addr, (*from)->ai_addrlen) != 0)
    return failed("use the interface of", local, errno);
  if (::connect(socket->get(), (*to)->ai_addr, (*to)->ai_addrlen) != 0 && errno != EINPROGRESS)
    return failed("connect to", peer, errno);
  return socket;
}

int connect_result(int descriptor) {
  pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
  if (poll(&waiting, 1, 0) == 0) return EINPROGRESS;
  int result = 0;
  socklen_t size = sizeof result;
  if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &result, &size) != 0) return errno;
  return result;
}

Status set_options(int descriptor, std::chrono::milliseconds peer_timeout,
                   std::size_t buffer_bytes) {
  const int milliseconds = static_cast<int>(peer_timeout.count());
  // An idle connection is probed as often as fits into the timeout, three or four times: where 5 of
  // 100 packets are lost, three in a row are lost within minutes.
  const int seconds = std::max(1, milliseconds / 4000);
  const int probes = std::max(3, milliseconds / (1000 * seconds) - 1);
  if (buffer_bytes != 0) {
    const int bytes = static_cast<int>(std::min<std::size_t>(buffer_bytes, kMostBufferBytes));
    ARC_RETURN_IF_ERROR(set(descriptor, SOL_SOCKET, SO_SNDBUF, bytes, "SO_SNDBUF"));
    ARC_RETURN_IF_ERROR(set(descriptor, SOL_SOCKET, SO_RCVBUF, bytes, "SO_RCVBUF"));
  }
  ARC_RETURN_IF_ERROR(set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  ARC_RETURN_IF_ERROR(set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, seconds, "TCP_KEEPIDLE"));
  ARC_RETURN_IF_ERROR(set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, seconds, "TCP_KEEPINTVL"));
  ARC_RETURN_IF_ERROR(set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, probes, "TCP_KEEPCNT"));
  return set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
}

LinkStatistics statistics_of(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {.rtt_us = info.tcpi_rtt,
          .rtt_variance_us = info.tcpi_rttvar,
          .least_rtt_us = info.tcpi_min_rtt,
          .retransmits = info.tcpi_total_retrans,
          .retransmitted_bytes = info.tcpi_bytes_retrans,
          .sent_bytes = info.tcpi_bytes_sent,
          .acknowledged_bytes = info.tcpi_bytes_acked,
          .received_bytes = info.tcpi_bytes_received,
          .delivered_bytes_per_second = info.tcpi_delivery_rate,
          .waited_for_peer_us = info.tcpi_rwnd_limited,
          .waited_for_buffer_us = info.tcpi_sndbuf_limited};
}

std::chrono::milliseconds silence_of(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  const bool owes = info.tcpi_unacked != 0 || info.tcpi_probes != 0;
  return std::chrono::milliseconds(owes ? info.tcpi_last_ack_recv : 0);
}

}  // namespace arcomm::net
