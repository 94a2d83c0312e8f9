#include "daemon/telemetry/log/escape.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "proto/text.h"

namespace arcomm {
namespace {

constexpr std::string_view kCut = "...";

}  // namespace

void append_json_escaped(std::string& out, std::string_view text, std::size_t budget) {
  const std::size_t limit = out.size() + budget;
  while (!text.empty()) {
    const CodePoint character = first_code_point(text);
    const std::size_t length = std::max<std::size_t>(character.bytes, 1);
    std::array<char, 8> escaped{};
    std::string_view piece = text.substr(0, length);
    if (text.front() == '"' || text.front() == '\\') {
      escaped = {'\\', text.front()};
      piece = escaped.data();
    } else if (character.bytes == 0 || is_unprintable(character.value)) {
      // What is no character is told by its byte.
      const unsigned value = character.bytes == 0 ? static_cast<unsigned char>(text.front())
                                                  : static_cast<unsigned>(character.value);
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", value);
      piece = escaped.data();
    }
    if (out.size() + piece.size() + kCut.size() > limit) {
      out += kCut;
      return;
    }
    out += piece;
    text.remove_prefix(length);
  }
}

void append_text_escaped(std::string& out, std::string_view text, std::size_t budget) {
  append_safe_text(out, text, budget);
}

}  // namespace arcomm
