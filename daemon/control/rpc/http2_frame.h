// Frames of HTTP/2 (RFC 9113) as bytes, where the daemon, and tests that are hostile to it, write
// some themselves. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace arcomm {

enum class Http2Frame : std::uint8_t {
  Data = 0,
  Headers = 1,
  ResetStream = 3,
  Settings = 4,
  Ping = 6,
  GoAway = 7,
  WindowUpdate = 8,
  Continuation = 9
};
inline constexpr std::uint8_t kHttp2EndStream = 1, kHttp2EndHeaders = 4;  // flags

// value in so many bytes, the highest first.
inline void append_http2_number(std::string& to, std::uint32_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    to.push_back(static_cast<char>(value >> shift & 0xff));
}

// stream 0: the connection as a whole.
inline void append_http2_frame(std::string& to, Http2Frame type, std::string_view payload,
                               std::uint8_t flags = 0, std::uint32_t stream = 0) {
  append_http2_number(to, static_cast<std::uint32_t>(payload.size()), 3);
  to.push_back(static_cast<char>(type));
  to.push_back(static_cast<char>(flags));
  append_http2_number(to, stream, 4);
  to.append(payload);
}

}  // namespace arcomm
