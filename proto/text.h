// Text that a stranger wrote, made fit to be shown: names, reasons, whatever a client sends for
// people to read. It is made safe once, where it enters; what is safe is cut only between
// characters. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace arcomm {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: the text does not begin with a whole character of UTF-8
};
CodePoint first_code_point(std::string_view text);

// A character that is shown as something else than itself: controls, line separators, what turns
// the direction of writing, what has no width.
bool is_unprintable(char32_t character);

// The length of what remains where a character was cut off at the end.
std::size_t whole_length(std::string_view text);
// At most `most_bytes` of it, and no part of a character.
std::string_view cut_text(std::string_view text, std::size_t most_bytes);

// What is shown of the next character of a text: a part of the text itself, or what is written into
// `room`. `bytes` is what it takes from the text, of which `character` says more.
using Escape = std::string_view (*)(std::string_view bytes, CodePoint character,
                                    std::span<char, 16> room);
// Appends `text`, escaped character by character. It stops, with "...", before more than
// `most_bytes` are appended; no escape is cut.
void append_escaped(std::string& out, std::string_view text, std::size_t most_bytes, Escape escape);

// Appends `text` as valid UTF-8 on one line: what is none, or unprintable, as \xNN and \uNNNN.
// Bounds as append_escaped. Safe text stays as it is.
void append_safe_text(std::string& out, std::string_view text, std::size_t most_bytes);
std::string safe_text(std::string_view text, std::size_t most_bytes);

}  // namespace arcomm
