// A gRPC server that misbehaves on purpose, on a unix socket: each connection plays the next scene,
// which writes HTTP/2 frames byte by byte. A thread per connection: destroy the channels first, so
// that scenes find their clients gone; else their waits last ten seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "proto/unique_fd.h"

namespace arcomm::client {

// Frames, as bytes to send.
namespace http2 {
inline constexpr std::uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6,
                              kGoaway = 7, kContinuation = 9;
inline constexpr std::uint8_t kEndStream = 1, kEndHeaders = 4;
using Fields = std::vector<std::pair<std::string, std::string>>;

std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                  std::string_view payload);
std::string header_block(const Fields& fields);  // HPACK, literals only
std::string grpc_message(std::string_view bytes);
std::string answer_start(std::uint32_t stream);
std::string answer_data(std::uint32_t stream, std::string_view message);
std::string answer_end(std::uint32_t stream, const Fields& trailers = {{"grpc-status", "0"}});
std::string answer(std::uint32_t stream, std::string_view message);
}  // namespace http2

// One connection, from the server's side.
class FakePeer {
 public:
  explicit FakePeer(UniqueFd fd) : fd_(std::move(fd)) {}

  // Sends SETTINGS with the first request; the request's stream id, or 0 once the client hung up.
  std::uint32_t read_request();
  // Of the request that was read last.
  const std::string& message() const { return message_; }
  // False once the client hung up.
  bool send(std::string_view bytes);
  void wait_for_hang_up();

 private:
  bool read_exactly(std::size_t bytes);

  UniqueFd fd_;
  std::string read_;
  std::string message_;
  bool greeted_ = false;
};

class FakeGrpcServer {
 public:
  using Scene = std::function<void(FakePeer& peer)>;

  explicit FakeGrpcServer(std::vector<Scene> scenes);
  ~FakeGrpcServer();
  FakeGrpcServer(const FakeGrpcServer&) = delete;
  FakeGrpcServer& operator=(const FakeGrpcServer&) = delete;

  const std::string& path() const { return path_; }

  // Answers every request with `message`.
  static Scene answering(std::string message);

 private:
  void accept_all();

  std::string folder_, path_;
  UniqueFd listener_;
  const std::vector<Scene> scenes_;
  std::vector<std::jthread> connections_;
  std::jthread acceptor_;
};

}  // namespace arcomm::client
