#include "client/arctl/json.h"

#include <array>
#include <charconv>
#include <cmath>

namespace arcomm::arctl {
namespace {

// Bytes of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
std::size_t sequence_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                             : lead >= 0xe0 && lead <= 0xef ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

Json& Json::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ':';
  after_key_ = true;
  return *this;
}

Json& Json::value(std::string_view text) {
  separate();
  quote(text);
  return *this;
}

Json& Json::value(bool truth) {
  separate();
  text_ += truth ? "true" : "false";
  return *this;
}

Json& Json::value(double number) {
  separate();
  if (!std::isfinite(number)) {
    text_ += "null";
    return *this;
  }
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  text_.append(digits.data(), end.ptr);
  return *this;
}

Json& Json::open(char bracket) {
  separate();
  text_ += bracket;
  has_members_.push_back(false);
  return *this;
}

Json& Json::close(char bracket) {
  text_ += bracket;
  has_members_.pop_back();
  return *this;
}

Json& Json::integer(std::int64_t number) {
  separate();
  text_ += std::to_string(number);
  return *this;
}

Json& Json::natural(std::uint64_t number) {
  separate();
  text_ += std::to_string(number);
  return *this;
}

void Json::separate() {
  if (std::exchange(after_key_, false) || has_members_.empty()) return;
  if (has_members_.back()) text_ += ',';
  has_members_.back() = true;
}

void Json::quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  text_ += '"';
  while (!text.empty()) {
    const char c = text.front();
    const auto byte = static_cast<unsigned char>(c);
    const std::size_t length = sequence_bytes(text);
    if (length == 0) {
      text_ += "\xef\xbf\xbd";
      text.remove_prefix(1);
      continue;
    }
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (c == '\t') {
      text_ += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      text_ += "\\u00";
      text_ += kHex[byte >> 4];
      text_ += kHex[byte & 0xf];
    } else {
      text_.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  text_ += '"';
}

}  // namespace arcomm::arctl
