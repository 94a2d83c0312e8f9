#include "transport/net/tcp/endpoint.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/net/sealing.h"
#include "transport/net/tcp/socket.h"

namespace arcomm::net {
namespace {

// Taken off the listener's queue in one call of accept().
constexpr int kMostAccepted = 16;
// Round trips between continents.
constexpr std::chrono::milliseconds kFairTime{200};

// A peer that spoke the protocol hears why, if it can be sent at once.
void say_goodbye(int socket, std::string_view why) {
  FrameHeader header{.kind = FrameKind::Goodbye};
  seal(header, std::as_bytes(std::span(why)));
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += why;
  // Should it not go out whole, the peer sees the end of the connection instead.
  (void)::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Result<std::unique_ptr<Endpoint>> TcpEndpoint::open(EndpointOptions options) {
  auto listener = listen_on(options.address);
  if (!listener) return std::move(listener).error();
  auto address = address_of(listener->get());
  if (!address) return std::move(address).error();
  options.address = *std::move(address);
  return std::unique_ptr<Endpoint>(new TcpEndpoint(std::move(options), *std::move(listener)));
}

TcpEndpoint::TcpEndpoint(EndpointOptions options, UniqueFd listener)
    : options_(std::move(options)), listener_(std::move(listener)) {
  if (!options_.regions) options_.regions = std::make_shared<Regions>();
}

const Capabilities& TcpEndpoint::capabilities() const {
  return TcpConnection::capabilities_of_all();
}

Result<ConnectionPtr> TcpEndpoint::connect(const Address& peer, std::string_view peer_name,
                                           const HelloKey& key, const Secret& answer) {
  auto socket = connect_from(options_.address, peer);
  if (!socket) return std::move(socket).error();
  ARC_RETURN_IF_ERROR(set_options(socket->get(), options_.peer_timeout, options_.buffer_bytes));
  return TcpConnection::connecting(
      *std::move(socket), connection_options(connection_name(peer_name, peer, key)), key, answer);
}

TcpConnection::Options TcpEndpoint::connection_options(std::string name) const {
  return {.name = std::move(name),
          .regions = options_.regions,
          .greeting_timeout = options_.greeting_timeout,
          .peer_timeout = options_.peer_timeout};
}

// Those that have spoken go first: those that come must not push out those whose hello is there.
ConnectionPtr TcpEndpoint::accept(const CheckKey& check_key) {
  if (ConnectionPtr connection = hear_strangers(check_key)) return connection;
  admit_strangers();
  return hear_strangers(check_key);
}

ConnectionPtr TcpEndpoint::hear_strangers(const CheckKey& check_key) {
  const auto now = Clock::now();
  for (std::size_t i = 0; i < strangers_.size();) {
    Greeting greeting = listen_to(strangers_[i]);
    if (greeting == Greeting::Waits && now > strangers_[i].greeted_by) greeting = Greeting::Wrong;
    if (greeting == Greeting::Waits) {
      ++i;
      continue;
    }
    Stranger stranger = std::move(strangers_[i]);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
    ConnectionPtr connection;
    if (greeting == Greeting::Complete) connection = welcome(std::move(stranger), check_key);
    if (connection) return connection;
    ++refused_;
  }
  return nullptr;
}

void TcpEndpoint::admit_strangers() {
  for (int i = 0; i < kMostAccepted; ++i) {
    // The oldest goes, if it has had time: a peer that means it shows its key within a round trip.
    // Otherwise those that come wait in the listener's queue.
    const bool is_full = strangers_.size() >= options_.most_strangers;
    if (is_full && Clock::now() < strangers_.front().admitted + kFairTime) return;
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;  // none, or no descriptor is free: those that wait are asked for again
    if (!set_options(socket.get(), options_.peer_timeout, options_.buffer_bytes)) continue;
    if (is_full) {
      strangers_.pop_front();
      ++refused_;
    }
    Stranger& stranger = strangers_.emplace_back();
    stranger.socket = std::move(socket);
    stranger.admitted = Clock::now();
    stranger.greeted_by = stranger.admitted + options_.greeting_timeout;
  }
}

TcpEndpoint::Greeting TcpEndpoint::listen_to(Stranger& stranger) {
  const auto rest = std::span(stranger.hello).subspan(stranger.received);
  const ssize_t got = recv(stranger.socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Greeting::Waits : Greeting::Wrong;
  if (got == 0) return Greeting::Wrong;
  stranger.received += static_cast<std::size_t>(got);
  if (stranger.received < sizeof(FrameHeader)) return Greeting::Waits;
  auto header =
      open_header(std::span<const std::byte>(stranger.hello).first<sizeof(FrameHeader)>());
  if (!header && header.error().reason == Reason::Version)
    say_goodbye(stranger.socket.get(), header.error().message);
  if (!header || header->kind != FrameKind::Hello || header->number != 0) return Greeting::Wrong;
  return stranger.received < stranger.hello.size() ? Greeting::Waits : Greeting::Complete;
}

ConnectionPtr TcpEndpoint::welcome(Stranger stranger, const CheckKey& check_key) {
  const std::span<const std::byte> bytes(stranger.hello);
  const auto header = open_header(bytes.first<sizeof(FrameHeader)>());
  const auto payload = bytes.subspan<sizeof(FrameHeader)>();
  if (!header || !check_payload(*header, payload)) return nullptr;
  HelloKey key;
  std::memcpy(&key, payload.data(), sizeof key);
  const auto guest = check_key(key);
  if (!guest) {
    say_goodbye(stranger.socket.get(), guest.error().message);
    return nullptr;
  }
  auto from = peer_address_of(stranger.socket.get());
  if (!from) return nullptr;  // it is gone again
  return TcpConnection::accepted(std::move(stranger.socket),
                                 connection_options(connection_name(guest->peer, *from, key)),
                                 guest->answer);
}

}  // namespace arcomm::net
