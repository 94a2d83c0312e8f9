// A file of what was measured, read and written whole, and how a text stands in it. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "proto/status.h"

namespace arcomm {

// NotFound where there is no such file.
Result<std::string> read_tuning_file(const std::string& path);
// Writes beside the file and renames: a reader sees the old one or the new one.
Status write_tuning_file(std::string_view text, const std::string& path);

// As a TOML string.
std::string quoted(std::string_view text);

}  // namespace arcomm
