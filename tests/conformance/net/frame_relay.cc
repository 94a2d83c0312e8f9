#include "tests/conformance/net/frame_relay.h"

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "proto/net/frame.h"
#include "transport/net/tcp/socket.h"

namespace arcomm::net {
namespace {

// Appends what has come; true: nothing more will.
bool read_into(std::vector<std::byte>& bytes, const UniqueFd& socket) {
  std::array<std::byte, 1 << 16> piece;
  ssize_t got = 0;
  while ((got = recv(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT)) > 0)
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + got);
  return got == 0;
}

void write_from(std::vector<std::byte>& bytes, const UniqueFd& socket) {
  if (bytes.empty()) return;
  const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) bytes.erase(bytes.begin(), bytes.begin() + sent);
}

}  // namespace

FrameRelay::FrameRelay(const std::string& host, Address peer)
    : peer_(std::move(peer)), listener_(listen_on({host, 0}).value()) {
  address_ = address_of(listener_.get()).value();
}

void FrameRelay::step() {
  if (!from_) {
    from_ = UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!from_) return;
    to_ = connect_from({address_.host, 0}, peer_).value();
  }
  if (connect_result(to_.get()) != 0) return;
  const bool is_there_over = read_into(come_, from_);
  pass_on_frames();
  write_from(there_, to_);
  if (is_there_over && there_.empty()) shutdown(to_.get(), SHUT_WR);
  const bool is_back_over = read_into(back_, to_);
  write_from(back_, from_);
  if (is_back_over && back_.empty()) shutdown(from_.get(), SHUT_WR);
}

void FrameRelay::pass_on_frames() {
  FrameHeader header;
  while (come_.size() >= sizeof header) {
    std::memcpy(&header, come_.data(), sizeof header);
    const std::size_t bytes = sizeof header + header.length;
    if (come_.size() < bytes) return;
    const auto how = header.kind == FrameKind::Hello ? std::nullopt : std::exchange(how_, {});
    const int times = !how ? 1 : *how == Tampering::Repeats ? 2 : 0;
    const auto end = come_.begin() + static_cast<std::ptrdiff_t>(bytes);
    for (int i = 0; i < times; ++i) there_.insert(there_.end(), come_.begin(), end);
    come_.erase(come_.begin(), end);
  }
}

}  // namespace arcomm::net
