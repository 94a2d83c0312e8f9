#include "daemon/telemetry/log/escape.h"

#include <cstdio>
#include <span>

#include "proto/text.h"

namespace arcomm {

void append_json_escaped(std::string& out, std::string_view text, std::size_t budget) {
  append_escaped(out, text, budget,
                 [](std::string_view bytes, CodePoint character, std::span<char, 16> room) {
                   const bool is_character = character.bytes != 0;
                   if (is_character && (bytes == "\"" || bytes == "\\")) {
                     room[0] = '\\';
                     room[1] = bytes.front();
                     return std::string_view(room.data(), 2);
                   }
                   if (is_character && !is_unprintable(character.value)) return bytes;
                   // What is no character is told by its byte.
                   const unsigned value = is_character ? static_cast<unsigned>(character.value)
                                                       : static_cast<unsigned char>(bytes.front());
                   std::snprintf(room.data(), room.size(), "\\u%04x", value);
                   return std::string_view(room.data());
                 });
}

void append_text_escaped(std::string& out, std::string_view text, std::size_t budget) {
  append_safe_text(out, text, budget);
}

}  // namespace arcomm
