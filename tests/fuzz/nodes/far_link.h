// The hostile peer's end of a link to a daemon: sockets, and what it has been told there.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/fuzz/nodes/daemon.h"
#include "transport/net/sealing.h"
#include "transport/net/tcp/connection.h"

namespace arcomm::fuzz {

inline constexpr std::size_t kStreams = 2;  // of a link: messages and bulk

inline std::pair<UniqueFd, UniqueFd> socket_pair() {
  std::array<int, 2> ends{};
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

inline net::TcpConnection::Options options_of(std::size_t other,
                                              std::shared_ptr<net::Regions> regions) {
  using std::chrono::seconds;
  return {.name = kNames[other],
          .regions = std::move(regions),
          .greeting_timeout = seconds(10),
          .peer_timeout = seconds(10)};
}

// Its end of one stream.
struct Stream {
  UniqueFd socket;
  std::uint64_t number = 1;  // of the next frame that it sends
  std::vector<std::byte> heard;

  void say(std::span<const std::byte> bytes) {
    if (socket) (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
};

// Its end of a link, and what it has learnt there.
class FarLink {
 public:
  FarLink(Daemon& daemon, std::shared_ptr<net::Regions> regions) {
    std::array<net::ConnectionPtr, kStreams> theirs;
    for (std::size_t i = 0; i < kStreams; ++i) {
      auto [mine, its] = socket_pair();
      streams_[i].socket = std::move(mine);
      theirs[i] = net::TcpConnection::accepted(std::move(its), options_of(kDaemons, regions), {});
    }
    daemon.link(kDaemons, std::move(theirs[0]), std::move(theirs[1]), std::move(regions));
  }

  Stream& stream(std::size_t which) { return streams_[which]; }
  net::WindowBody window(std::uint64_t number) const {
    const auto found = std::ranges::find(windows_, number, [](const auto& w) { return w.first; });
    return found == windows_.end() ? net::WindowBody{} : found->second;
  }
  std::uint64_t last_ready() const { return last_ready_; }
  void end() {
    for (Stream& stream : streams_) stream.socket.reset();
  }
  // Reads what has come, as a peer would: where its data may go stands in it.
  void hear() {
    for (Stream& stream : streams_) {
      std::array<std::byte, 16384> part;
      for (ssize_t got = 1; stream.socket && got > 0;) {
        got = ::recv(stream.socket.get(), part.data(), part.size(), 0);
        if (got > 0) stream.heard.insert(stream.heard.end(), part.begin(), part.begin() + got);
      }
      take_frames(stream.heard);
    }
  }

 private:
  void take_frames(std::vector<std::byte>& heard) {
    std::size_t at = 0;
    while (heard.size() - at >= sizeof(net::FrameHeader)) {
      net::FrameHeader header;
      std::memcpy(&header, heard.data() + at, sizeof header);
      check(net::check_header(header).ok());
      const std::size_t bytes = sizeof header + header.length;
      if (heard.size() - at < bytes) break;
      const auto payload = std::span(heard).subspan(at + sizeof header, header.length);
      check(net::check_payload(header, payload).ok());
      if (header.kind == net::FrameKind::Message) note(header, payload);
      at += bytes;
    }
    heard.erase(heard.begin(), heard.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void note(const net::FrameHeader& header, std::span<const std::byte> payload) {
    const Result<net::Message> message = net::read_message(payload);
    check(message.ok());
    if (message->kind == net::MessageKind::Window)
      windows_.emplace_back(header.communicator, net::body_of<net::WindowBody>(message->body));
    if (message->kind == net::MessageKind::Ready)
      last_ready_ = net::body_of<net::ReadyBody>(message->body).region;
  }

  std::array<Stream, kStreams> streams_;
  std::vector<std::pair<std::uint64_t, net::WindowBody>> windows_;
  std::uint64_t last_ready_ = 0;
};

}  // namespace arcomm::fuzz
