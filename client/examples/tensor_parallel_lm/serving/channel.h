// A connected stream socket that carries whole messages between the front end and one rank process.
// Thread: one reader and one writer. Ownership: owns the descriptor. Failures are
// std::runtime_error and name the peer.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lm {

class Channel {
 public:
  Channel(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {}
  Channel(Channel&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), peer_(std::move(other.peer_)) {}
  Channel& operator=(Channel&&) = delete;
  ~Channel();

  // Both ends: [0] for the parent, [1] for a child process that inherits it.
  static std::pair<int, int> open_pair();

  void send(std::string_view message);
  // nullopt if the peer closed the channel between messages.
  std::optional<std::string> receive(std::chrono::milliseconds timeout);
  // The same where the end of the peer is a failure.
  std::string expect(std::chrono::milliseconds timeout);

 private:
  std::size_t read_fully(char* to, std::size_t bytes,
                         std::chrono::steady_clock::time_point deadline);

  int fd_;
  std::string peer_;
};

// Messages are sequences of numbers and strings, in this machine's byte order.
class MessageWriter {
 public:
  template <typename Number>
  MessageWriter& number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  MessageWriter& text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : bytes_(bytes) {}
  template <typename Number>
  Number number() {
    Number value;
    const std::string_view raw = take(sizeof value);
    raw.copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string text();

 private:
  std::string_view take(std::size_t count);

  std::string_view bytes_;
};

}  // namespace lm
