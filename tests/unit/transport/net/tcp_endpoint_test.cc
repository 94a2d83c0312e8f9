// What strangers do to a port: scanners, garbage, those that say nothing, those that come in
// masses.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <thread>

#include "transport/net/sealing.h"
#include "transport/net/tcp/endpoint.h"
#include "transport/net/tcp/socket.h"

namespace arcomm::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class TcpEndpointTest : public testing::Test {
 protected:
  std::unique_ptr<Endpoint> open(EndpointOptions options = {}) {
    options.address = {"127.0.0.1", 0};
    return TcpEndpoint::open(options).value();
  }
  UniqueFd stranger(const Endpoint& endpoint) {
    UniqueFd socket = connect_from({"127.0.0.1", 0}, endpoint.address()).value();
    while (connect_result(socket.get()) == EINPROGRESS) std::this_thread::yield();
    return socket;
  }
  static void send(const UniqueFd& socket, std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static CheckKey any_key() {
    return [](const HelloKey&) -> Result<Guest> { return Guest{.peer = "somebody"}; };
  }
  // Until so many were turned away.
  static bool refuses(Endpoint& endpoint, std::uint64_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (endpoint.refused() < count && std::chrono::steady_clock::now() < end) {
      EXPECT_EQ(endpoint.accept(any_key()), nullptr);
      std::this_thread::yield();
    }
    return endpoint.refused() == count;
  }
  // What the stranger hears before the end of the connection.
  static std::string heard(const UniqueFd& socket) {
    std::string text(4096, '\0');
    std::size_t size = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (std::chrono::steady_clock::now() < end) {
      const ssize_t got = recv(socket.get(), text.data() + size, text.size() - size, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) break;
      if (got > 0) size += static_cast<std::size_t>(got);
    }
    return text.substr(0, size);
  }
  static FrameHeader hello(const HelloKey& key) {
    FrameHeader header{.kind = FrameKind::Hello};
    seal(header, std::as_bytes(std::span(&key, 1)));
    return header;
  }
};

TEST_F(TcpEndpointTest, GarbageIsTurnedAwayAtItsFirstHeader) {
  auto endpoint = open();
  const std::string request =
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a scanner of ports\r\nAccept: */*\r\n\r\n";
  const UniqueFd scanner = stranger(*endpoint);
  send(scanner, std::as_bytes(std::span(request)));
  EXPECT_TRUE(refuses(*endpoint, 1));
  EXPECT_EQ(heard(scanner), "");
}

TEST_F(TcpEndpointTest, AFrameThatIsNoHelloOrNotTheFirstIsTurnedAway) {
  auto endpoint = open();
  FrameHeader header{.kind = FrameKind::Put, .region = 1};
  seal(header, {});
  const UniqueFd socket = stranger(*endpoint);
  send(socket, std::as_bytes(std::span(&header, 1)));
  EXPECT_TRUE(refuses(*endpoint, 1));

  FrameHeader late{.kind = FrameKind::Hello, .number = 1};
  const HelloKey key;
  seal(late, std::as_bytes(std::span(&key, 1)));
  const UniqueFd repeated = stranger(*endpoint);
  send(repeated, std::as_bytes(std::span(&late, 1)));
  EXPECT_TRUE(refuses(*endpoint, 2));
}

TEST_F(TcpEndpointTest, AnotherVersionAndByteOrderAreToldWhy) {
  auto endpoint = open();
  FrameHeader other{.version = 9, .kind = FrameKind::Hello};
  const UniqueFd newer = stranger(*endpoint);
  send(newer, std::as_bytes(std::span(&other, 1)));
  EXPECT_TRUE(refuses(*endpoint, 1));
  EXPECT_THAT(heard(newer), HasSubstr("speaks wire version 9"));

  other = {.magic = 0x41524346};
  const UniqueFd big_endian = stranger(*endpoint);
  send(big_endian, std::as_bytes(std::span(&other, 1)));
  EXPECT_TRUE(refuses(*endpoint, 2));
  EXPECT_THAT(heard(big_endian), HasSubstr("another byte order"));
}

TEST_F(TcpEndpointTest, WhoSaysNothingIsTurnedAwayAfterItsTime) {
  auto endpoint = open({.address = {}, .greeting_timeout = milliseconds(100)});
  const UniqueFd silent = stranger(*endpoint);
  const UniqueFd slow = stranger(*endpoint);
  const HelloKey key;
  const FrameHeader header = hello(key);
  send(slow, std::as_bytes(std::span(&header, 1)).first(71));
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(refuses(*endpoint, 2));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(90));
}

TEST_F(TcpEndpointTest, MassesOfStrangersDoNotKeepAPeerOut) {
  auto endpoint = open({.address = {}, .most_strangers = 8});
  std::vector<UniqueFd> scanners;
  for (int i = 0; i < 50; ++i) scanners.push_back(stranger(*endpoint));
  const HelloKey key{.key = {}, .stream = 3, .rail = 1};
  const FrameHeader header = hello(key);
  const UniqueFd peer = stranger(*endpoint);
  send(peer, std::as_bytes(std::span(&header, 1)));
  send(peer, std::as_bytes(std::span(&key, 1)));
  ConnectionPtr accepted;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!accepted && std::chrono::steady_clock::now() < end)
    accepted = endpoint->accept(any_key());
  ASSERT_NE(accepted, nullptr);
  EXPECT_THAT(accepted->name(), HasSubstr("stream 3 over rail 1"));
  EXPECT_GE(endpoint->refused(), 40u);
}

TEST_F(TcpEndpointTest, PeersThatComeAllAtOnceAreAllWelcome) {
  auto endpoint = open({.address = {}, .most_strangers = 8});
  const HelloKey key;
  const FrameHeader header = hello(key);
  std::vector<UniqueFd> peers;
  for (int i = 0; i < 100; ++i) {
    peers.push_back(stranger(*endpoint));
    send(peers.back(), std::as_bytes(std::span(&header, 1)));
    send(peers.back(), std::as_bytes(std::span(&key, 1)));
  }
  std::vector<ConnectionPtr> accepted;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (accepted.size() < peers.size() && std::chrono::steady_clock::now() < end) {
    if (ConnectionPtr connection = endpoint->accept(any_key()))
      accepted.push_back(std::move(connection));
  }
  EXPECT_EQ(accepted.size(), peers.size());
  EXPECT_EQ(endpoint->refused(), 0u);
}

TEST_F(TcpEndpointTest, AFrameThatIsBegunAndNotEndedIsGivenUpAndItsRegionIsFree) {
  auto endpoint = open({.address = {}, .peer_timeout = milliseconds(100)});
  std::vector<std::byte> memory(1000);
  const RegionId region = endpoint->regions().add(memory, {}, {}).value();
  const HelloKey key;
  const FrameHeader greeting = hello(key);
  const UniqueFd peer = stranger(*endpoint);
  send(peer, std::as_bytes(std::span(&greeting, 1)));
  send(peer, std::as_bytes(std::span(&key, 1)));
  FrameHeader put{.kind = FrameKind::Put, .number = 1, .region = region};
  seal(put, memory);
  send(peer, std::as_bytes(std::span(&put, 1)));

  struct NoReceiver final : Receiver {
    Result<std::byte*> place(const FrameHeader&) override { return nullptr; }
    Status arrived(const FrameHeader&, std::span<const std::byte>) override { return {}; }
    void abandoned(const FrameHeader&) override {}
  } receiver;
  ConnectionPtr connection;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    if (!connection) connection = endpoint->accept(any_key());
    if (connection && connection->progress(receiver) == Progress::Failed) break;
  }
  ASSERT_NE(connection, nullptr);
  EXPECT_EQ(connection->error().reason, Reason::Timeout);
  EXPECT_THAT(connection->error().message, HasSubstr("began a frame"));
  EXPECT_TRUE(endpoint->regions().remove(region));
}

TEST_F(TcpEndpointTest, AnAddressThatIsInUseIsNamed) {
  auto endpoint = open();
  const auto second = TcpEndpoint::open({.address = endpoint->address()});
  EXPECT_EQ(second.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(second.error().message,
              HasSubstr(endpoint->address().to_string() + ": Address already in use"));
  EXPECT_THAT(TcpEndpoint::open({.address = {"192.0.2.1", 0}}).error().message,
              HasSubstr("Cannot assign requested address"));
}

}  // namespace
}  // namespace arcomm::net
