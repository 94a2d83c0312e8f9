#include "client/examples/tensor_parallel_lm/serving/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace lm {
namespace {

constexpr std::uint64_t kLongestMessage = 16 << 20;  // bytes

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

}  // namespace

Channel::~Channel() {
  if (fd_ >= 0) ::close(fd_);
}

std::pair<int, int> Channel::open_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(std::string("socketpair: ") + std::strerror(errno));
  }
  ::fcntl(ends[1], F_SETFD, 0);  // the child's end survives its exec
  return {ends[0], ends[1]};
}

void Channel::send(std::string_view message) {
  const std::uint64_t size = message.size();
  std::string framed(reinterpret_cast<const char*>(&size), sizeof size);
  framed += message;
  for (std::string_view rest = framed; !rest.empty();) {
    const ssize_t sent = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) fail(peer_ + " cannot be written to: " + std::strerror(errno));
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::optional<std::string> Channel::receive(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::uint64_t size = 0;
  const std::size_t head = read_fully(reinterpret_cast<char*>(&size), sizeof size, deadline);
  if (head == 0) return std::nullopt;
  if (head < sizeof size || size > kLongestMessage) fail(peer_ + " sent a broken message");
  std::string message(size, '\0');
  if (read_fully(message.data(), size, deadline) < size) fail(peer_ + " ended within a message");
  return message;
}

std::string Channel::expect(std::chrono::milliseconds timeout) {
  std::optional<std::string> message = receive(timeout);
  if (!message) fail(peer_ + " ended; its own message is above");
  return *std::move(message);
}

std::size_t Channel::read_fully(char* to, std::size_t bytes,
                                std::chrono::steady_clock::time_point deadline) {
  std::size_t have = 0;
  while (have < bytes) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{fd_, POLLIN, 0};
    const int ready =
        ::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready < 0 && errno != EINTR) fail(peer_ + ": poll: " + std::strerror(errno));
    if (ready == 0) fail(peer_ + " did not answer in time");
    if (ready < 0) continue;
    const ssize_t got = ::recv(fd_, to + have, bytes - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  return have;
}

MessageWriter& MessageWriter::text(std::string_view value) {
  number<std::uint64_t>(value.size());
  bytes_ += value;
  return *this;
}

std::string MessageReader::text() {
  return std::string(take(number<std::uint64_t>()));
}

std::string_view MessageReader::take(std::size_t count) {
  if (count > bytes_.size()) fail("a message ends too early");
  const std::string_view taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

}  // namespace lm
