#include "daemon/control/refusal.h"

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/control/rpc/http2_frame.h"

namespace arcomm {
namespace {

// RFC 9113, section 7.
constexpr std::uint32_t kEnhanceYourCalm = 11, kInadequateSecurity = 12;
constexpr std::uint32_t kNoStream = 0, kAnyStream = 0x7fff'ffff;  // the last that was served
constexpr std::size_t kLongestWhy = 1024;

void send_goodbye(int socket_fd, bool greeted, std::uint32_t last_stream, std::uint32_t code,
                  std::string_view why) {
  std::string reason;
  append_http2_number(reason, last_stream, 4);
  append_http2_number(reason, code, 4);
  reason.append(why.substr(0, kLongestWhy));
  std::string frames;
  if (!greeted) append_http2_frame(frames, Http2Frame::Settings, "");  // a server's first
  append_http2_frame(frames, Http2Frame::GoAway, reason);
  (void)!::send(socket_fd, frames.data(), frames.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

void say_refused(int socket_fd, std::string_view why) {
  send_goodbye(socket_fd, false, kNoStream, kInadequateSecurity, why);
}

void say_flooded(int socket_fd, std::string_view why, bool greeted) {
  send_goodbye(socket_fd, greeted, kAnyStream, kEnhanceYourCalm, why);
}

}  // namespace arcomm
