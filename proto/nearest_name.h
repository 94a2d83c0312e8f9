// Which of the names there are somebody most likely meant: a setting in a file, a word on a command
// line. Any thread; no state.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace arcomm {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// More edits than this are another name, not a slip. 0 for what is empty or longer than any name.
std::size_t most_edits(std::string_view name);

// The first of the nearest ones, if one is near enough.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> known);

}  // namespace arcomm
