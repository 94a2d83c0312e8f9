// What a reload changes, and what it cannot.
#include <utility>

#include "config/settings.h"
#include "config/settings_table.h"

namespace arcomm {

SettingsDiff diff_settings(const Settings& before, const Settings& after) {
  SettingsDiff diff;
  for (const SettingRow& row : settings_table()) {
    const std::string old_value = setting_toml(row, before);
    const std::string new_value = setting_toml(row, after);
    if (old_value == new_value) continue;
    std::string change = row.name();
    change.append(": ").append(old_value).append(" -> ").append(new_value);
    (row.reloadable ? diff.reloadable : diff.needs_restart).push_back(std::move(change));
  }
  return diff;
}

Settings merge_reloadable(const Settings& before, const Settings& after) {
  Settings merged = before;
  Settings source = after;
  for (const SettingRow& row : settings_table()) {
    if (!row.reloadable) continue;
    if (const auto* text = std::get_if<TextSetting>(&row.kind))
      text->field(merged) = text->field(source);
    if (const auto* number = std::get_if<NumberSetting>(&row.kind))
      number->field(merged) = number->field(source);
    if (const auto* flag = std::get_if<SwitchSetting>(&row.kind))
      flag->field(merged) = flag->field(source);
    if (const auto* choice = std::get_if<ChoiceSetting>(&row.kind))
      choice->set(merged, choice->get(source));
    if (const auto* limit = std::get_if<LimitSetting>(&row.kind))
      limit->field(merged) = limit->field(source);
  }
  return merged;
}

std::string tuning_path(const Settings& settings) {
  return settings.tuning.file.empty() ? settings.state_dir + "/tuning.toml" : settings.tuning.file;
}

std::string network_tuning_path(const Settings& settings) {
  std::string path = tuning_path(settings);
  constexpr std::string_view kEnding = ".toml";
  if (path.ends_with(kEnding)) path.resize(path.size() - kEnding.size());
  return path + ".network.toml";
}

}  // namespace arcomm
