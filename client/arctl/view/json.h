// What arctl prints for programs: nlohmann's JSON, with members in the order in which they were put
// in. Text is the caller's: nothing is printed here. Any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace arcomm::arctl {

using Json = nlohmann::ordered_json;

// A whole number is written without ".0"; nlohmann makes null of one that is not finite.
inline Json json_number(double number) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double skips whole numbers
  const bool is_whole = std::trunc(number) == number && std::abs(number) <= kExact;
  return is_whole ? Json(static_cast<std::int64_t>(number)) : Json(number);
}

// The document as one line, with its newline. What is not UTF-8 (names come from client processes)
// becomes U+FFFD: no byte of a stranger's makes this throw.
inline std::string json_line(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace arcomm::arctl
