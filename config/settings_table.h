// The one table: each row says all there is to say about a setting. Files, variables, flags, the
// sample file, the manual and --print-config are all read off it. Thread: constant data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "config/settings.h"

namespace arcomm {

// A value as a file, a variable or a flag gives it, before its row has judged it.
using SettingValue = std::variant<std::string, std::int64_t, bool>;

enum class SettingUnit : std::uint8_t { None, Bytes, Milliseconds, Microseconds };

struct TextSetting {
  std::string& (*field)(Settings&);
  bool (*accepts)(std::string_view);
  std::string_view allowed;  // what `accepts` accepts, in words
};
struct NumberSetting {
  std::uint64_t& (*field)(Settings&);
  std::uint64_t min = 0, max = 0;
  bool power_of_two = false;
};
struct SwitchSetting {
  bool& (*field)(Settings&);
};
struct ChoiceSetting {
  std::span<const std::string_view> names;  // in the order of the enum
  std::uint8_t (*get)(const Settings&);
  void (*set)(Settings&, std::uint8_t);
};

// A number from 0 on, or a word that stands for a number of its own.
struct LimitSetting {
  struct Word {
    std::string_view name;
    std::int64_t value = 0;
  };
  std::int64_t& (*field)(Settings&);
  std::span<const Word> words;
  std::int64_t max = 0;
};

struct SettingRow {
  std::string_view section;  // "" for the keys above the first section
  std::string_view key;
  std::variant<TextSetting, NumberSetting, SwitchSetting, ChoiceSetting, LimitSetting> kind;
  SettingUnit unit = SettingUnit::None;
  bool reloadable = false;
  std::string_view doc;  // sentences, without line breaks

  std::string name() const;      // "log.level"
  std::string variable() const;  // "ARCOMM_LOG_LEVEL"
};

std::span<const SettingRow> settings_table();
const SettingRow* find_setting(std::string_view name);
// The existing name that `name` most likely meant, if one is near enough.
std::optional<std::string> nearest_setting(std::string_view name);

// "an integer from 1 to 16 ms", "one of text, json"
std::string allowed_text(const SettingRow& row);
// Stores the value, or says what is wrong with it: "expected one of text, json, got \"xml\"".
std::optional<std::string> apply_setting(const SettingRow& row, const SettingValue& value,
                                         Settings& settings);
// The same for a value written as bare text: 256, true, 64MiB, 30s, json.
std::optional<std::string> apply_setting_text(const SettingRow& row, std::string_view text,
                                              Settings& settings);
// The value as TOML: 256, true, "text".
std::string setting_toml(const SettingRow& row, const Settings& settings);
// What is wrong between settings that are each right alone, with the name of the one to change.
struct SettingConflict {
  std::string name, message;
};
std::optional<SettingConflict> find_conflict(const Settings& settings);

}  // namespace arcomm
