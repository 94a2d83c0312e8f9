#include "proto/text.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace arcomm {
namespace {

constexpr std::string_view kCut = "...";

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

bool continues(unsigned byte) {
  return (byte & 0xc0) == 0x80;
}

// Bytes of the character that begins with `first`, should it be whole.
std::size_t length_after(unsigned first) {
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  if (text.empty()) return {};
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return {static_cast<char32_t>(first), 1};
  const std::size_t length = length_after(first);
  if (length == 1 || first > 0xf4 || length > text.size()) return {};
  char32_t value = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (!continues(byte_at(text, i))) return {};
    value = value << 6 | (byte_at(text, i) & 0x3f);
  }
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kLeast[length] || value > 0x10ffff || is_surrogate) return {};
  return {value, length};
}

bool is_unprintable(char32_t character) {
  const auto within = [character](char32_t first, char32_t last) {
    return character >= first && character <= last;
  };
  return character < 0x20 || within(0x7f, 0x9f) || character == 0x61c || character == 0x200b ||
         within(0x200e, 0x200f) || within(0x2028, 0x202e) || within(0x2060, 0x206f) ||
         character == 0xfeff || within(0xfff9, 0xfffb);
}

std::size_t whole_length(std::string_view text) {
  for (std::size_t i = 1; i <= std::min<std::size_t>(3, text.size()); ++i) {
    const unsigned byte = byte_at(text, text.size() - i);
    if (continues(byte)) continue;
    return length_after(byte) > i ? text.size() - i : text.size();
  }
  return text.size();
}

std::string_view cut_text(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  return text.substr(0, whole_length(text.substr(0, most_bytes)));
}

void append_escaped(std::string& out, std::string_view text, std::size_t most_bytes,
                    Escape escape) {
  const std::size_t begin = out.size();
  std::size_t room_for_cut = begin;  // how far it goes where "..." still fits behind
  while (!text.empty()) {
    const CodePoint character = first_code_point(text);
    const std::size_t taken = std::max<std::size_t>(character.bytes, 1);
    std::array<char, 16> room{};
    const std::string_view piece = escape(text.substr(0, taken), character, room);
    if (out.size() - begin + piece.size() > most_bytes) {
      out.resize(room_for_cut);
      if (out.size() - begin + kCut.size() <= most_bytes) out += kCut;
      return;
    }
    out += piece;
    if (out.size() - begin + kCut.size() <= most_bytes) room_for_cut = out.size();
    text.remove_prefix(taken);
  }
}

void append_safe_text(std::string& out, std::string_view text, std::size_t most_bytes) {
  append_escaped(out, text, most_bytes,
                 [](std::string_view bytes, CodePoint character, std::span<char, 16> room) {
                   const bool is_character = character.bytes != 0;
                   if (is_character && !is_unprintable(character.value)) return bytes;
                   const bool is_byte = !is_character || character.value < 0x80;
                   const unsigned value =
                       is_byte ? byte_at(bytes, 0) : static_cast<unsigned>(character.value);
                   std::snprintf(room.data(), room.size(), is_byte ? "\\x%02x" : "\\u%04x", value);
                   return std::string_view(room.data());
                 });
}

std::string safe_text(std::string_view text, std::size_t most_bytes) {
  std::string safe;
  append_safe_text(safe, text, most_bytes);
  return safe;
}

}  // namespace arcomm
