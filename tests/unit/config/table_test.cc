// The table itself: each row can be reached, accepts its own default, and refuses what lies beyond
// its range.
#include <gmock/gmock.h>

#include <set>

#include "config/settings_table.h"

namespace arcomm {
namespace {

std::string unquoted(std::string text) {
  if (text.size() >= 2 && text.front() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

TEST(SettingsTable, NamesAndVariablesAreUniqueAndDocumented) {
  std::set<std::string> names, variables;
  for (const SettingRow& row : settings_table()) {
    EXPECT_TRUE(names.insert(row.name()).second) << row.name();
    EXPECT_TRUE(variables.insert(row.variable()).second) << row.variable();
    EXPECT_GT(row.doc.size(), 10u) << row.name();
    EXPECT_EQ(row.doc.back(), '.') << row.name();
    EXPECT_EQ(find_setting(row.name()), &row);
  }
  EXPECT_GE(names.size(), 25u);
}

TEST(SettingsTable, KeepsRowsOfASectionTogether) {
  std::set<std::string_view> seen;
  std::string_view current = "none yet";
  for (const SettingRow& row : settings_table()) {
    if (row.section == current) continue;
    EXPECT_TRUE(seen.insert(row.section).second) << row.section;
    current = row.section;
  }
}

TEST(SettingsTable, EveryRowAcceptsItsDefaultWrittenAsText) {
  const Settings defaults;
  for (const SettingRow& row : settings_table()) {
    Settings settings;
    const auto wrong = apply_setting_text(row, unquoted(setting_toml(row, defaults)), settings);
    EXPECT_FALSE(wrong) << row.name() << ": " << wrong.value_or("");
    EXPECT_EQ(settings, defaults) << row.name();
  }
  EXPECT_FALSE(find_conflict(defaults));
}

TEST(SettingsTable, EveryNumberAcceptsItsEndsAndRefusesWhatLiesBeyond) {
  for (const SettingRow& row : settings_table()) {
    const auto* number = std::get_if<NumberSetting>(&row.kind);
    if (number == nullptr) continue;
    Settings settings;
    EXPECT_FALSE(apply_setting_text(row, std::to_string(number->min), settings)) << row.name();
    EXPECT_EQ(number->field(settings), number->min);
    EXPECT_FALSE(apply_setting_text(row, std::to_string(number->max), settings)) << row.name();
    EXPECT_EQ(number->field(settings), number->max);
    EXPECT_TRUE(apply_setting_text(row, std::to_string(number->max + 1), settings)) << row.name();
    EXPECT_TRUE(apply_setting_text(row, "99999999999999999999", settings)) << row.name();
    EXPECT_TRUE(apply_setting_text(row, "-1", settings)) << row.name();
    EXPECT_TRUE(apply_setting_text(row, "1 parsec", settings)) << row.name();
    EXPECT_TRUE(apply_setting_text(row, "", settings)) << row.name();
    EXPECT_EQ(number->field(settings), number->max) << "a refused value was stored";
  }
}

TEST(SettingsTable, EveryChoiceTakesItsNamesAndNoOther) {
  for (const SettingRow& row : settings_table()) {
    const auto* choice = std::get_if<ChoiceSetting>(&row.kind);
    if (choice == nullptr) continue;
    Settings settings;
    for (std::string_view name : choice->names) {
      EXPECT_FALSE(apply_setting_text(row, name, settings)) << row.name();
      EXPECT_EQ(unquoted(setting_toml(row, settings)), name);
    }
    EXPECT_TRUE(apply_setting_text(row, "another", settings)) << row.name();
  }
}

TEST(SettingsTable, EveryLimitTakesItsWordsAndNumbersFromZero) {
  for (const SettingRow& row : settings_table()) {
    const auto* limit = std::get_if<LimitSetting>(&row.kind);
    if (limit == nullptr) continue;
    Settings settings;
    for (const LimitSetting::Word& word : limit->words) {
      EXPECT_FALSE(apply_setting_text(row, word.name, settings)) << row.name();
      EXPECT_EQ(limit->field(settings), word.value);
      EXPECT_EQ(unquoted(setting_toml(row, settings)), word.name);
    }
    EXPECT_FALSE(apply_setting_text(row, std::to_string(limit->max), settings)) << row.name();
    EXPECT_EQ(limit->field(settings), limit->max);
    EXPECT_EQ(setting_toml(row, settings), std::to_string(limit->max));
    EXPECT_FALSE(apply_setting(row, std::int64_t{1}, settings)) << row.name();
    for (const char* wrong : {"-1", "-2", "another", "", "99999999999999999999", "1 parsec"}) {
      EXPECT_TRUE(apply_setting_text(row, wrong, settings)) << row.name() << ": " << wrong;
    }
    EXPECT_TRUE(apply_setting(row, std::int64_t{-2}, settings)) << row.name();
    EXPECT_TRUE(apply_setting(row, true, settings)) << row.name();
    EXPECT_EQ(limit->field(settings), 1) << "a refused value was stored";
  }
}

TEST(SettingsTable, ARingLargerThanStagingOrItsProductIsAConflict) {
  Settings settings;
  settings.net.staging_bytes = 1 << 20;
  settings.ring.chunk_bytes = 128 << 10;
  settings.ring.num_chunks = 8;
  EXPECT_FALSE(find_conflict(settings));
  settings.ring.num_chunks = 9;
  const auto staging = find_conflict(settings);
  ASSERT_TRUE(staging);
  EXPECT_EQ(staging->name, "ring.chunk_bytes");
  EXPECT_THAT(staging->message, testing::HasSubstr("net.staging_bytes (1048576)"));
  EXPECT_THAT(staging->message, testing::HasSubstr("ring.num_chunks (9)"));
  settings.ring.num_chunks = 0;
  settings.ring.max_bdp_bytes = 64 << 10;
  const auto product = find_conflict(settings);
  ASSERT_TRUE(product);
  EXPECT_THAT(product->message, testing::HasSubstr("ring.max_bdp_bytes (65536)"));
  settings.ring.chunk_bytes = 64 << 10;
  EXPECT_FALSE(find_conflict(settings));
}

TEST(SettingsTable, UnderstandsUnitsAndRefusesOverflow) {
  Settings settings;
  const SettingRow& bytes = *find_setting("op.segment_bytes");
  EXPECT_FALSE(apply_setting_text(bytes, "64MiB", settings));
  EXPECT_EQ(settings.op.segment_bytes, 64u << 20);
  EXPECT_FALSE(apply_setting_text(bytes, "128 KiB", settings));
  EXPECT_EQ(settings.op.segment_bytes, 128u << 10);
  EXPECT_TRUE(apply_setting_text(bytes, "30s", settings));
  EXPECT_TRUE(apply_setting_text(bytes, "18446744073709551615TiB", settings));
  const SettingRow& time = *find_setting("op.default_timeout_ms");
  EXPECT_FALSE(apply_setting_text(time, "2min", settings));
  EXPECT_EQ(settings.op.default_timeout_ms, 120'000u);
  EXPECT_TRUE(apply_setting_text(*find_setting("rings.slots"), "256ms", settings));
}

// What PyTorch gives NCCL: a rank that compiles or loads weights comes minutes after its peers.
TEST(SettingsTable, GivesRanksThatCompileTenMinutesAndAKnobThatSaysWhy) {
  const Settings settings;
  EXPECT_EQ(settings.op.default_timeout_ms, 600'000u);
  EXPECT_LT(settings.op.default_timeout_ms, settings.op.max_timeout_ms);
  const std::string_view doc = find_setting("op.default_timeout_ms")->doc;
  EXPECT_NE(doc.find("Ten minutes"), std::string_view::npos) << doc;
}

TEST(SettingsTable, AcceptsOnlyListenAddressesThatCanBeListenedOn) {
  Settings settings;
  const SettingRow& row = *find_setting("metrics.listen");
  for (const char* good :
       {"", "127.0.0.1:9464", "0.0.0.0:0", "[::1]:9464", "unix:/run/arcommd/metrics.sock"})
    EXPECT_FALSE(apply_setting_text(row, good, settings)) << good;
  for (const char* bad : {"127.0.0.1", "localhost:9464", "127.0.0.1:70000", "127.0.0.1:-1", ":9464",
                          "::1:9464", "unix:metrics.sock", "unix:", "127.0.0.1:94x"})
    EXPECT_TRUE(apply_setting_text(row, bad, settings)) << bad;
  EXPECT_TRUE(apply_setting_text(row, "unix:/" + std::string(107, 'a'), settings));
}

TEST(SettingsTable, RuntimeFolderLeavesRoomForItsSockets) {
  Settings settings;
  const SettingRow& row = *find_setting("runtime_dir");
  EXPECT_FALSE(apply_setting_text(row, "/" + std::string(89, 'a'), settings));
  EXPECT_TRUE(apply_setting_text(row, "/" + std::string(90, 'a'), settings));
  EXPECT_TRUE(apply_setting_text(row, "run/arcommd", settings));
}

TEST(SettingsTable, EveryMisspelledNameFindsItsWayBack) {
  for (const SettingRow& row : settings_table()) {
    std::string name = row.name();
    std::swap(name[name.size() - 1], name[name.size() - 2]);
    if (name == row.name()) continue;
    EXPECT_EQ(nearest_setting(name), row.name());
  }
}

}  // namespace
}  // namespace arcomm
