#include "daemon/in_force.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/daemon/telemetry/temporary_folder.h"

namespace arcomm {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

Loaded loaded(const std::string& state_dir) {
  Loaded loaded;
  loaded.settings.state_dir = state_dir;
  return loaded;
}

TEST(InForce, ServesWithTheBuiltInTableWhereTheOneOfTheFolderCannotBeRead) {
  const TemporaryFolder folder;
  InForce in_force(loaded(folder.path()));
  const std::string built_in = in_force.tuning()->source;
  in_force.load_tables();
  EXPECT_THAT(in_force.warnings(), ElementsAre());  // none is there, as on a new node
  std::ofstream(tuning_path(*in_force.settings())) << "this is no table";
  in_force.load_tables();
  EXPECT_EQ(in_force.tuning()->source, built_in);
  EXPECT_THAT(in_force.warnings(), ElementsAre(HasSubstr("the built-in tuning is used: ")));
}

TEST(InForce, KeepsWhatNeedsARestartAndLeavesReadersWhatTheyRead) {
  InForce in_force(loaded("/a"));
  const std::shared_ptr<const Settings> before = in_force.settings();
  Loaded next = loaded("/b");
  next.settings.log.level = LogLevel::Trace;
  const InForce::Change change = in_force.reload(next);
  EXPECT_EQ(change.generation, 2U);
  EXPECT_THAT(change.diff.needs_restart, Contains(HasSubstr("state_dir")));
  EXPECT_THAT(change.diff.reloadable, Contains(HasSubstr("log.level")));
  EXPECT_EQ(in_force.settings(), change.settings);
  EXPECT_EQ(change.settings->state_dir, "/a");
  EXPECT_EQ(change.settings->log.level, LogLevel::Trace);
  EXPECT_NE(before->log.level, LogLevel::Trace);
}

TEST(InForce, SaysInTheStatusWhatItServesWith) {
  Loaded with = loaded("/a");
  with.path = "/etc/arcommd/\xff.toml";
  with.warnings = {"first"};
  InForce in_force(with);
  in_force.warn("second");
  v1::StatusReply status;
  in_force.describe(status);
  EXPECT_THAT(status.warnings(), ElementsAre("first", "second"));
  EXPECT_EQ(status.config_generation(), 1U);
  EXPECT_EQ(status.config_file().find('\xff'), std::string::npos);  // else arctl could not read it
  EXPECT_EQ(status.tuning(), in_force.tuning()->source);
  EXPECT_GT(status.settings_size(), 0);
}

}  // namespace
}  // namespace arcomm
