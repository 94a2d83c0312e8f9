// Sizes, times and counts as people read and type them. KiB, MiB, GiB are powers of 1024.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace arcomm::arctl {

std::string human_bytes(std::uint64_t bytes);  // "512 B", "1 KiB", "1.5 MiB"
std::string human_count(std::uint64_t count);  // "999", "12.3 k", "4.56 M"
std::string human_duration(
    std::uint64_t ms);            // "850 ms", "12 s", "3 min 05 s", "2 h 03 min", "5 d 01 h"
std::string human_us(double us);  // "4.25 us", "1.20 ms", "2.50 s"
std::string fixed(double number, int decimals);  // 3.14159, 2 -> "3.14"
std::string version_text(std::uint32_t number);  // 102 -> "0.1.2"

// "1024", "64K", "64KiB", "1.5M", "1G": K, M and G are powers of 1024, upper or lower case, "B" and
// "iB" optional. Nothing for anything else and for what does not fit 64 bits.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace arcomm::arctl
