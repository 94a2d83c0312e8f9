#include "tests/unit/client/control/fake_grpc_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace arcomm::client {
namespace http2 {
namespace {

std::string big_endian(std::size_t value, std::size_t bytes) {
  std::string out(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    out[bytes - 1 - i] = static_cast<char>((value >> (8 * i)) & 0xff);
  }
  return out;
}

std::string hpack_text(std::string_view text) {
  std::string out;
  std::size_t length = text.size();
  if (length < 127) {
    out.push_back(static_cast<char>(length));
  } else {
    out.push_back(127);
    for (length -= 127; length >= 128; length /= 128) {
      out.push_back(static_cast<char>(length % 128 + 128));
    }
    out.push_back(static_cast<char>(length));
  }
  return out.append(text);
}

}  // namespace

std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                  std::string_view payload) {
  std::string out = big_endian(payload.size(), 3);
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  return out.append(big_endian(stream, 4)).append(payload);
}

std::string header_block(const Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    out.push_back('\0');  // literal without indexing, new name
    out.append(hpack_text(name)).append(hpack_text(value));
  }
  return out;
}

std::string grpc_message(std::string_view bytes) {
  return std::string(1, '\0').append(big_endian(bytes.size(), 4)).append(bytes);
}

std::string answer_start(std::uint32_t stream) {
  return frame(kHeaders, kEndHeaders, stream,
               header_block({{":status", "200"}, {"content-type", "application/grpc"}}));
}

std::string answer_data(std::uint32_t stream, std::string_view message) {
  return frame(kData, 0, stream, grpc_message(message));
}

std::string answer_end(std::uint32_t stream, const Fields& trailers) {
  return frame(kHeaders, kEndHeaders | kEndStream, stream, header_block(trailers));
}

std::string answer(std::uint32_t stream, std::string_view message) {
  return answer_start(stream) + answer_data(stream, message) + answer_end(stream);
}

}  // namespace http2

namespace {

constexpr int kPatienceMs = 10'000;
constexpr std::size_t kPrefaceBytes = 24;
constexpr std::size_t kFrameHeaderBytes = 9;
constexpr std::size_t kGrpcPrefixBytes = 5;  // compressed or not, and the length

}  // namespace

bool FakePeer::read_exactly(std::size_t bytes) {
  read_.assign(bytes, '\0');
  for (std::size_t have = 0; have < bytes;) {
    pollfd waits{fd_.get(), POLLIN, 0};
    if (::poll(&waits, 1, kPatienceMs) <= 0) return false;
    const ssize_t n = ::recv(fd_.get(), read_.data() + have, bytes - have, 0);
    if (n <= 0) return false;
    have += static_cast<std::size_t>(n);
  }
  return true;
}

std::uint32_t FakePeer::read_request() {
  if (!greeted_) {
    if (!read_exactly(kPrefaceBytes)) return 0;
    if (!send(http2::frame(http2::kSettings, 0, 0, ""))) return 0;
    greeted_ = true;
  }
  std::string data;
  for (;;) {
    if (!read_exactly(kFrameHeaderBytes)) return 0;
    const auto byte = [this](std::size_t i) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(read_[i]));
    };
    const std::uint32_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
    const std::uint32_t type = byte(3), flags = byte(4);
    const std::uint32_t stream = byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
    if (!read_exactly(length)) return 0;
    if (type != http2::kData) continue;
    data += read_;
    if ((flags & http2::kEndStream) == 0) continue;
    message_ = data.substr(std::min(data.size(), kGrpcPrefixBytes));
    return stream;
  }
}

bool FakePeer::send(std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd waits{fd_.get(), POLLOUT, 0};
    if (::poll(&waits, 1, kPatienceMs) <= 0) return false;
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void FakePeer::wait_for_hang_up() {
  pollfd waits{fd_.get(), POLLRDHUP, 0};
  ::poll(&waits, 1, kPatienceMs);
}

FakeGrpcServer::Scene FakeGrpcServer::answering(std::string message) {
  return [message = std::move(message)](FakePeer& peer) {
    while (const std::uint32_t stream = peer.read_request()) {
      if (!peer.send(http2::answer(stream, message))) return;
    }
  };
}

FakeGrpcServer::FakeGrpcServer(std::vector<Scene> scenes) : scenes_(std::move(scenes)) {
  char folder[] = "/tmp/arc-fake-XXXXXX";
  if (::mkdtemp(folder) == nullptr) ADD_FAILURE() << std::strerror(errno);
  folder_ = folder;
  path_ = folder_ + "/s";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener_.get(), 16) != 0) {
    ADD_FAILURE() << path_ << ": " << std::strerror(errno);
  }
  acceptor_ = std::jthread([this] { accept_all(); });
}

FakeGrpcServer::~FakeGrpcServer() {
  ::shutdown(listener_.get(), SHUT_RDWR);  // ends accept()
  acceptor_.join();
  connections_.clear();  // the clients are gone, so their scenes end
  ::unlink(path_.c_str());
  ::rmdir(folder_.c_str());
}

void FakeGrpcServer::accept_all() {
  for (std::size_t i = 0;; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) return;
    if (i == scenes_.size()) {
      ADD_FAILURE() << "connection " << i << " has no scene";
      return;
    }
    connections_.emplace_back(
        [scene = scenes_[i], peer = FakePeer(std::move(fd))]() mutable { scene(peer); });
  }
}

}  // namespace arcomm::client
