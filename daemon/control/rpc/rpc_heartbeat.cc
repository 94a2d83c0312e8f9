#include "daemon/control/rpc/rpc_heartbeat.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>
#include <string>

#include "daemon/control/rpc/http2_frame.h"

namespace arcomm {
namespace {

constexpr std::uint32_t kLastStream = 0x7fff'fff0;

// HPACK (RFC 7541) without a table of its own: POST and http are entries of the static one, the
// others literals whose names are, but for `te`.
std::string call_headers() {
  const auto text = [](std::string_view value) {
    return std::string(1, static_cast<char>(value.size())) + std::string(value);
  };
  return "\x83\x86\x04" + text("/arcommd.Heartbeat/Beat") + "\x01" + text("arcommd") + "\x0f\x10" +
         text("application/grpc") + std::string(1, '\0') + text("te") + text("trailers");
}

}  // namespace

void RpcHeartbeat::connect() {
  of_earlier_ += answers();
  answers_ = FrameReader(FrameReader::Side::Server);
  stream_ = 0;
  connection_.reset();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
  connection_ = UniqueFd(ends[0]);
  adopt_(UniqueFd(ends[1]));
  std::string greeting(FrameReader::kPreface);
  append_http2_frame(greeting, Http2Frame::Settings, "");
  if (!send(greeting)) connection_.reset();
}

bool RpcHeartbeat::send(const std::string& bytes) {
  return ::send(connection_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

void RpcHeartbeat::hear() {
  std::array<std::byte, 4096> bytes;
  while (connection_) {
    const ssize_t got = ::recv(connection_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return connection_.reset();
    static_cast<void>(answers_.read(std::span(bytes).first(static_cast<std::size_t>(got))).ok());
  }
}

std::uint64_t RpcHeartbeat::count() {
  hear();
  return of_earlier_ + answers();
}

void RpcHeartbeat::end() {
  has_ended_ = true;
  connection_.reset();
}

void RpcHeartbeat::nudge() {
  if (has_ended_) return;
  hear();
  if (!connection_ || stream_ >= kLastStream) connect();
  if (!connection_) return;
  if (stream_ != 0 && answers() == heard_before_) return;
  stream_ = stream_ == 0 ? 1 : stream_ + 2;
  heard_before_ = answers();
  std::string call;
  append_http2_frame(call, Http2Frame::Headers, call_headers(), kHttp2EndHeaders, stream_);
  append_http2_frame(call, Http2Frame::Data, std::string(5, '\0'), kHttp2EndStream, stream_);
  if (!send(call)) connection_.reset();
}

}  // namespace arcomm
