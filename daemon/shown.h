// How text that may hold whatever bytes goes into a reply to an operator. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "proto/text.h"

namespace arcomm {

inline constexpr std::size_t kMostShownBytes = 4096;  // of a path, a value, a warning

// Paths, the environment and configuration files hold whatever bytes they hold, and a reply with a
// string that is no UTF-8 is one that arctl cannot read.
inline std::string shown(std::string_view text) {
  return safe_text(text, kMostShownBytes);
}

}  // namespace arcomm
