// The generated texts: they are what is checked in, and they can be read back.
#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "config/settings.h"
#include "config/settings_table.h"

namespace arcomm {
namespace {

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr char kMakeAnew[] = "build the target config_texts and commit what it writes";

TEST(GeneratedTexts, SampleFileIsTheOneCheckedIn) {
  EXPECT_EQ(file_text(ARCOMM_SOURCE_DIR "/config/arcommd.toml"), render_default_toml())
      << kMakeAnew;
}

TEST(GeneratedTexts, ManualIsTheOneCheckedIn) {
  EXPECT_EQ(file_text(ARCOMM_SOURCE_DIR "/config/arcommd.toml.5"), render_manual()) << kMakeAnew;
}

TEST(GeneratedTexts, SampleFileSaysDefaultsWhetherCommentedOrNot) {
  const std::string commented = render_default_toml();
  const auto as_is = parse_settings(commented, "sample");
  ASSERT_TRUE(as_is) << as_is.error().to_string();
  EXPECT_EQ(as_is->settings, Settings{});
  const std::string bare = std::regex_replace(commented, std::regex("(^|\n)#([a-z_]+ = )"), "$1$2");
  const auto loaded = parse_settings(bare, "sample");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->settings, Settings{});
  for (const SettingSource source : loaded->sources) EXPECT_EQ(source, SettingSource::File);
}

TEST(GeneratedTexts, PrintedValuesCanBeReadBack) {
  const auto loaded =
      parse_settings("", "a.toml",
                     {.flags = {"log.level=debug", "quota.in_flight=17", "watchdog.enabled=false",
                                "log.file=/tmp/with \"quotes\" and \\ in it", "gpu.mps=off"}});
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  const auto again = parse_settings(render_values(*loaded), "printed");
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->settings, loaded->settings);
}

TEST(GeneratedTexts, ManualNamesEverySettingAndVariable) {
  const std::string manual = std::regex_replace(render_manual(), std::regex("\\\\-"), "-");
  for (const SettingRow& row : settings_table()) {
    EXPECT_NE(manual.find(".BR " + std::string(row.key) + " "), std::string::npos) << row.name();
    EXPECT_NE(manual.find(row.variable()), std::string::npos) << row.variable();
  }
}

TEST(GeneratedTexts, WhatSaysNothingToGpusBetweenNodesSaysSo) {
  for (const SettingRow& row : settings_table()) {
    const std::string name = row.name();
    if (name != "net.algorithm" && name != "net.order" && name != "net.partials") continue;
    EXPECT_NE(row.doc.find("GPUs"), std::string_view::npos) << name << ": " << row.doc;
  }
}

}  // namespace
}  // namespace arcomm
