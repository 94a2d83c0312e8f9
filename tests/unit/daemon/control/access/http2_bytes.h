// What a client of HTTP/2 sends, in bytes.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/control/access/frame_reader.h"
#include "daemon/control/rpc/http2_frame.h"

namespace arcomm::test {

// stream 0: the connection as a whole.
inline std::string frame(std::uint8_t type, const std::string& payload, std::uint8_t flags = 0,
                         std::uint32_t stream = 0) {
  std::string bytes;
  append_http2_frame(bytes, static_cast<Http2Frame>(type), payload, flags, stream);
  return bytes;
}

inline constexpr std::uint8_t kEndStream = kHttp2EndStream, kEndHeaders = kHttp2EndHeaders;

// The HEADERS of a call to that path, whose message is still to come.
inline std::string call_of(std::uint32_t stream, const std::string& path) {
  const auto text = [](const std::string& value) {
    return std::string(1, static_cast<char>(value.size())) + value;
  };
  // HPACK's static table has POST as 3, http as 6, the names of :authority, :path and content-type
  // as 1, 4 and 31.
  return frame(1,
               "\x83\x86\x04" + text(path) + "\x01" + text("test") + "\x0f\x10" +
                   text("application/grpc") + std::string(1, '\0') + text("te") + text("trailers"),
               kEndHeaders, stream);
}

inline std::string reset_of(std::uint32_t stream) {
  return frame(3, std::string("\0\0\0\10", 4), 0, stream);  // CANCEL
}

// The preface and empty SETTINGS.
inline std::string greeting() {
  return std::string(FrameReader::kPreface) + frame(4, "");
}

}  // namespace arcomm::test
