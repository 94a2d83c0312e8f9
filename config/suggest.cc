// Finding a setting by its name, and by something near its name.
#include <algorithm>
#include <numeric>
#include <vector>

#include "config/settings_table.h"

namespace arcomm {
namespace {

constexpr std::size_t kLongestName = 64;

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_above(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
    std::swap(two_above, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string_view key_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

}  // namespace

std::string SettingRow::name() const {
  return section.empty() ? std::string(key) : std::string(section) + "." + std::string(key);
}

std::string SettingRow::variable() const {
  std::string variable = "ARCOMM_" + name();
  for (char& c : variable) c = c == '.' ? '_' : upper(c);
  return variable;
}

const SettingRow* find_setting(std::string_view name) {
  for (const SettingRow& row : settings_table())
    if (row.name() == name) return &row;
  return nullptr;
}

std::optional<std::string> nearest_setting(std::string_view name) {
  if (name.empty() || name.size() > kLongestName) return std::nullopt;
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  std::optional<std::string> nearest;
  for (const SettingRow& row : settings_table()) {
    const std::string candidate = row.name();
    std::size_t distance = edit_distance(name, candidate);
    // The right key in the wrong section, or with none, is a likely slip however long the section's
    // name is.
    if (key_of(name) == row.key) distance = std::min<std::size_t>(distance, 1);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace arcomm
