#include "daemon/telemetry/log/escape.h"

#include <array>
#include <cstdint>
#include <cstdio>

namespace arcomm {
namespace {

constexpr std::string_view kCut = "...";

// Bytes of the UTF-8 sequence that begins at text[0]; 0 when none does.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    if (!continues(1) || !continues(2)) return 0;
    const bool is_overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool is_surrogate = first == 0xed && byte(1) >= 0xa0;
    return is_overlong || is_surrogate ? 0 : 3;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    const bool is_overlong = first == 0xf0 && byte(1) < 0x90;
    const bool is_beyond = first == 0xf4 && byte(1) >= 0x90;
    return is_overlong || is_beyond ? 0 : 4;
  }
  return 0;
}

template <typename EscapeByte>
void append_escaped(std::string& out, std::string_view text, std::size_t budget,
                    EscapeByte escape_byte) {
  const std::size_t limit = out.size() + budget;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    std::array<char, 8> escaped{};
    std::string_view piece = text.substr(0, length == 0 ? 1 : length);
    if (length <= 1 && escape_byte(text.front(), length == 1, escaped)) piece = escaped.data();
    const std::size_t needed = piece.size() + kCut.size();
    if (out.size() + needed > limit) {
      out += kCut;
      return;
    }
    out += piece;
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text, std::size_t budget) {
  append_escaped(out, text, budget, [](char c, bool is_valid, std::array<char, 8>& escaped) {
    if (c == '"' || c == '\\') {
      escaped[0] = '\\';
      escaped[1] = c;
      return true;
    }
    if (is_valid && !is_control(c)) return false;
    std::snprintf(escaped.data(), escaped.size(), "\\u%04x",
                  static_cast<unsigned>(static_cast<unsigned char>(c)));
    return true;
  });
}

void append_text_escaped(std::string& out, std::string_view text, std::size_t budget) {
  append_escaped(out, text, budget, [](char c, bool is_valid, std::array<char, 8>& escaped) {
    if (is_valid && !is_control(c)) return false;
    std::snprintf(escaped.data(), escaped.size(), "\\x%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(c)));
    return true;
  });
}

}  // namespace arcomm
