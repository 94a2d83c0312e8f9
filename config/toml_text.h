// TOML in both directions: a text's assignments in the order of the text, and a string as TOML
// writes it. Exceptions of the parser end here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings_table.h"
#include "proto/status.h"

namespace arcomm {

inline constexpr std::size_t kMaxConfigBytes = 1 << 20;

// One "key = value", with the names of the tables around it: name "log.level". `value` is empty
// (type_problem says what was found instead) when the text holds something that no setting can be:
// an array, a date, a fraction.
struct TomlAssignment {
  std::string name;
  SettingValue value;
  std::string type_problem;
  std::uint32_t line = 0, column = 0;  // from 1
};

Result<std::vector<TomlAssignment>> parse_toml(std::string_view text, std::string_view file_name);

// "a\"b\n" with TOML's escapes.
std::string toml_quoted(std::string_view text);

}  // namespace arcomm
