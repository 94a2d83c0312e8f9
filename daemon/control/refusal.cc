#include "daemon/control/refusal.h"

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace arcomm {
namespace {

// RFC 9113, sections 4.1, 6.5 and 6.8.
constexpr std::uint8_t kSettings = 4;
constexpr std::uint8_t kGoAway = 7;
constexpr std::uint32_t kEnhanceYourCalm = 11, kInadequateSecurity = 12;
constexpr std::uint32_t kNoStream = 0, kAnyStream = 0x7fff'ffff;  // the last that was served
constexpr std::size_t kLongestWhy = 1024;

void append_number(std::string& to, std::uint32_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    to.push_back(static_cast<char>(value >> shift & 0xff));
}

void append_frame(std::string& to, std::uint8_t type, std::string_view payload) {
  append_number(to, static_cast<std::uint32_t>(payload.size()), 3);
  to.push_back(static_cast<char>(type));
  to.push_back('\0');       // no flags
  append_number(to, 0, 4);  // the connection as a whole
  to.append(payload);
}

void send_goodbye(int socket_fd, bool greeted, std::uint32_t last_stream, std::uint32_t code,
                  std::string_view why) {
  std::string reason;
  append_number(reason, last_stream, 4);
  append_number(reason, code, 4);
  reason.append(why.substr(0, kLongestWhy));
  std::string frames;
  if (!greeted) append_frame(frames, kSettings, "");  // a server's first
  append_frame(frames, kGoAway, reason);
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
