// What a reload takes up and what it leaves.
#include <gmock/gmock.h>

#include "config/settings.h"
#include "config/settings_table.h"

namespace arcomm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Reload, TellsWhatItTakesUpFromWhatNeedsARestart) {
  Settings before, after;
  after.log.level = LogLevel::Debug;
  after.recorder.records = 8192;
  const SettingsDiff diff = diff_settings(before, after);
  EXPECT_THAT(diff.reloadable, ElementsAre("log.level: \"info\" -> \"debug\""));
  EXPECT_THAT(diff.needs_restart, ElementsAre("recorder.records: 4096 -> 8192"));
  EXPECT_TRUE(diff_settings(before, before).empty());
}

TEST(Reload, MergesOnlyWhatItMayChange) {
  Settings before, after;
  after.log.level = LogLevel::Debug;
  after.quota.plans = 3;
  after.access.group = "other";
  after.recorder.records = 8192;
  after.state_dir = "/tmp/elsewhere";
  const Settings merged = merge_reloadable(before, after);
  EXPECT_EQ(merged.log.level, LogLevel::Debug);
  EXPECT_EQ(merged.quota.plans, 3u);
  EXPECT_EQ(merged.access.group, "other");
  EXPECT_EQ(merged.recorder.records, before.recorder.records);
  EXPECT_EQ(merged.state_dir, before.state_dir);
  EXPECT_THAT(diff_settings(merged, after).reloadable, IsEmpty());
  EXPECT_THAT(diff_settings(before, merged).needs_restart, IsEmpty());
}

TEST(Reload, TuningFileFollowsTheStateFolderUnlessNamed) {
  Settings settings;
  settings.state_dir = "/tmp/state";
  EXPECT_EQ(tuning_path(settings), "/tmp/state/tuning.toml");
  settings.tuning.file = "/tmp/mine.toml";
  EXPECT_EQ(tuning_path(settings), "/tmp/mine.toml");
}

}  // namespace
}  // namespace arcomm
