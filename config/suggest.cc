// Finding a setting by its name, and by something near its name.
#include <algorithm>

#include "config/settings_table.h"
#include "proto/nearest_name.h"

namespace arcomm {
namespace {

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
  const std::size_t most = most_edits(name);
  if (most == 0) return std::nullopt;
  std::size_t best = most + 1;
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
