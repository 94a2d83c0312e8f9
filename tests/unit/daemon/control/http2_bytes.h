// What a client of HTTP/2 sends, in bytes.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/control/access/frame_reader.h"

namespace arcomm::test {

inline std::string frame(std::uint8_t type, const std::string& payload) {
  std::string bytes;
  for (const int shift : {16, 8, 0})
    bytes.push_back(static_cast<char>(payload.size() >> shift & 0xff));
  bytes.push_back(static_cast<char>(type));
  bytes.append(5, '\0');  // no flags, the connection as a whole
  return bytes + payload;
}

// The preface and empty SETTINGS.
inline std::string greeting() {
  return std::string(FrameReader::kPreface) + frame(4, "");
}

}  // namespace arcomm::test
