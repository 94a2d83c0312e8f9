// Text from strangers (process names, messages) made safe for a log line. Output is valid UTF-8 on
// one line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace arcomm {

// Appends `text` as the inside of a JSON string; stops, with "...", before `budget` bytes are
// exceeded.
void append_json_escaped(std::string& out, std::string_view text, std::size_t budget);
// Appends `text` for people, as append_safe_text (proto/text.h).
void append_text_escaped(std::string& out, std::string_view text, std::size_t budget);

}  // namespace arcomm
