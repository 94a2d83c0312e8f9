#include "client/arctl/command_line/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace arcomm::arctl {
namespace {

std::string trimmed(double number, int decimals) {
  std::string text = fixed(number, decimals);
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string fixed(double number, int decimals) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, number);
  return text.data();
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 7> kUnits = {"B",   "KiB", "MiB", "GiB",
                                                        "TiB", "PiB", "EiB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.95 would be printed as 1024.0: it belongs to the next unit.
  while (number >= (unit == 0 ? 1024.0 : 1023.95) && unit + 1 < kUnits.size()) {
    number /= 1024;
    ++unit;
  }
  return trimmed(number, 1) + " " + kUnits[unit];
}

std::string human_count(std::uint64_t count) {
  static constexpr std::array<const char*, 5> kUnits = {" k", " M", " G", " T", " P"};
  if (count < 10'000) return std::to_string(count);
  double number = static_cast<double>(count) / 1000;
  std::size_t unit = 0;
  while (number >= 999.95 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  return fixed(number, 1) + kUnits[unit];
}

std::string human_duration(std::uint64_t ms) {
  const std::uint64_t s = ms / 1000, min = s / 60, h = min / 60, d = h / 24;
  const auto two = [](std::uint64_t number) {
    return (number < 10 ? "0" : "") + std::to_string(number);
  };
  if (ms < 1000) return std::to_string(ms) + " ms";
  if (s < 60) return std::to_string(s) + " s";
  if (min < 60) return std::to_string(min) + " min " + two(s % 60) + " s";
  if (h < 24) return std::to_string(h) + " h " + two(min % 60) + " min";
  return std::to_string(d) + " d " + two(h % 24) + " h";
}

std::string human_us(double us) {
  if (us < 999.995) return fixed(us, 2) + " us";
  if (us < 999'995) return fixed(us / 1e3, 2) + " ms";
  return fixed(us / 1e6, 2) + " s";
}

std::string version_text(std::uint32_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, failure] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (failure != std::errc{} || number < 0) return std::nullopt;
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double scale = 1;
  if (!unit.empty() && unit != "B") {
    switch (unit.front()) {
      case 'k':
      case 'K':
        scale = 0x1p10;
        break;
      case 'm':
      case 'M':
        scale = 0x1p20;
        break;
      case 'g':
      case 'G':
        scale = 0x1p30;
        break;
      default:
        return std::nullopt;
    }
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return std::nullopt;
  }
  const double bytes = number * scale;
  if (bytes >= 0x1p64 || bytes != std::floor(bytes)) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace arcomm::arctl
