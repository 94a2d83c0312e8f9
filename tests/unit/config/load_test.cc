// Sources and mistakes: what wins over what, and what a wrong value says.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "config/settings.h"

namespace arcomm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string message_of(std::string_view toml, const LoadRequest& request = {}) {
  const auto loaded = parse_settings(toml, "a.toml", request);
  if (loaded) return "(accepted)";
  EXPECT_EQ(loaded.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(loaded.error().reason, Reason::BadConfig);
  return loaded.error().message;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "arcomm-config-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

TEST(LoadSettings, GivesDefaultsForEmptyText) {
  const auto loaded = parse_settings("", "a.toml");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->settings, Settings{});
  EXPECT_THAT(loaded->warnings, IsEmpty());
}

TEST(LoadSettings, ReadsEveryKindOfValue) {
  const auto loaded = parse_settings(R"(
runtime_dir = "/tmp/arcommd"
[log]
level = "debug"
[op]
segment_bytes = 1048576
default_timeout_ms = "2s"
[quota]
registered_bytes = "3GiB"
[watchdog]
enabled = false
)",
                                     "a.toml");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->settings.runtime_dir, "/tmp/arcommd");
  EXPECT_EQ(loaded->settings.log.level, LogLevel::Debug);
  EXPECT_EQ(loaded->settings.op.segment_bytes, 1'048'576u);
  EXPECT_EQ(loaded->settings.op.default_timeout_ms, 2000u);
  EXPECT_EQ(loaded->settings.quota.registered_bytes, 3ull << 30);
  EXPECT_FALSE(loaded->settings.watchdog.enabled);
}

TEST(LoadSettings, TakesDottedKeysForSections) {
  const auto loaded = parse_settings("log.format = 'json'\n", "a.toml");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->settings.log.format, LogFormat::Json);
}

TEST(LoadSettings, LetsFlagWinOverEnvironmentAndEnvironmentOverFile) {
  const auto loaded = parse_settings(
      "[log]\nlevel = 'warn'\nformat = 'json'\n[wait]\nspin_us = 1\n", "a.toml",
      {.environment = {"ARCOMM_LOG_LEVEL=error", "ARCOMM_LOG_FORMAT=text", "HOME=/nowhere"},
       .flags = {"log.level=trace"}});
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->settings.log.level, LogLevel::Trace);
  EXPECT_EQ(loaded->settings.log.format, LogFormat::Text);
  EXPECT_EQ(loaded->settings.wait.spin_us, 1u);
  const std::string values = render_values(*loaded);
  EXPECT_THAT(values, HasSubstr("# flag"));
  EXPECT_THAT(values, HasSubstr("# environment"));
  EXPECT_THAT(values, HasSubstr("# file"));
  EXPECT_THAT(values, HasSubstr("# default"));
}

TEST(LoadSettings, CitesLineColumnKeyAndRange) {
  EXPECT_THAT(message_of("[rings]\nslots = 4\n"),
              AllOf(StartsWith("a.toml:2:1: rings.slots: "), HasSubstr("from 8 to 65536"),
                    HasSubstr("got 4")));
  EXPECT_THAT(message_of("[rings]\nslots = 100\n"), HasSubstr("a power of two"));
  EXPECT_THAT(
      message_of("\n\n[log]\n  level = 3\n"),
      AllOf(StartsWith("a.toml:4:3: log.level: "), HasSubstr("\"debug\""), HasSubstr("got 3")));
  EXPECT_THAT(message_of("[wait]\nspin_us = -1\n"), HasSubstr("got -1"));
  EXPECT_THAT(message_of("[wait]\nspin_us = 1.5\n"), HasSubstr("a number with a fraction"));
  EXPECT_THAT(message_of("[log]\nlevel = ['info']\n"), HasSubstr("got an array"));
  EXPECT_THAT(message_of("[watchdog]\nenabled = 'yes'\n"), HasSubstr("true or false"));
}

TEST(LoadSettings, CitesThePlaceOfASyntaxError) {
  EXPECT_THAT(message_of("[log]\nlevel = \n"), StartsWith("a.toml:2:"));
  EXPECT_THAT(message_of("[log]\nlevel = 'info'\nlevel = 'warn'\n"), StartsWith("a.toml:3:"));
}

TEST(LoadSettings, SuggestsTheSettingThatAnUnknownKeyMeant) {
  EXPECT_THAT(message_of("[log]\nlevle = 'info'\n"),
              AllOf(StartsWith("a.toml:2:1: unknown setting \"log.levle\""),
                    HasSubstr("did you mean \"log.level\"?")));
  EXPECT_THAT(message_of("segment_bytes = 65536\n"), HasSubstr("\"op.segment_bytes\""));
  EXPECT_THAT(message_of("[recoder]\nrecords = 16\n"), HasSubstr("\"recorder.records\""));
  EXPECT_THAT(message_of("[zzzzzzzz]\nqqqqqqqqqq = 1\n"), Not(HasSubstr("did you mean")));
}

TEST(LoadSettings, SaysThatASectionIsNoSetting) {
  EXPECT_THAT(message_of("log = 'info'\n"), HasSubstr("write [log]"));
}

TEST(LoadSettings, ListsEveryMistakeInTheOrderOfTheFile) {
  const std::string message = message_of("[rings]\nslots = 4\n[log]\nlevel = 'loud'\ncolour = 1\n");
  const std::size_t slots = message.find("a.toml:2:1");
  const std::size_t level = message.find("a.toml:4:1");
  const std::size_t colour = message.find("a.toml:5:1");
  ASSERT_NE(slots, std::string::npos);
  ASSERT_NE(level, std::string::npos);
  ASSERT_NE(colour, std::string::npos);
  EXPECT_LT(slots, level);
  EXPECT_LT(level, colour);
}

TEST(LoadSettings, RefusesValuesThatContradictEachOther) {
  EXPECT_THAT(message_of("[op]\nmax_timeout_ms = 10\ndefault_timeout_ms = 20\n"),
              AllOf(StartsWith("a.toml:3:1: "), HasSubstr("above op.max_timeout_ms (10)")));
}

TEST(LoadSettings, NamesTheVariableOrFlagThatIsWrong) {
  EXPECT_THAT(message_of("", {.environment = {"ARCOMM_RINGS_SLOTS=many"}}),
              AllOf(HasSubstr("ARCOMM_RINGS_SLOTS"), HasSubstr("rings.slots")));
  EXPECT_THAT(message_of("", {.flags = {"rings.slots=3"}}), StartsWith("flag: rings.slots: "));
  EXPECT_THAT(message_of("", {.flags = {"rings.slot=8"}}), HasSubstr("did you mean"));
  EXPECT_THAT(message_of("", {.flags = {"verbose"}}), HasSubstr("<section>.<key>=<value>"));
}

TEST(LoadSettings, WarnsOfUnknownVariablesButNotOfReservedOnes) {
  const auto loaded = parse_settings(
      "", "a.toml",
      {.environment = {"ARCOMM_LOG_LEVLE=info", "ARCOMM_CONFIG=/x", "ARCOMM_DEVICE=0",
                       "ARCOMM_POST=memops", "ARCOMM_TRIGGER=early", "ARCOMM_RUNTIME_DIR=/tmp/r",
                       "ARCOMM_STATE_DIR=/tmp/s", "OTHER_LOG=1"}});
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_THAT(loaded->warnings, ElementsAre(AllOf(HasSubstr("ARCOMM_LOG_LEVLE"),
                                                  HasSubstr("did you mean ARCOMM_LOG_LEVEL?"))));
  EXPECT_EQ(loaded->settings.runtime_dir, "/tmp/r");
  EXPECT_EQ(loaded->settings.state_dir, "/tmp/s");
}

TEST(LoadSettings, NoResidentInTheEnvironmentWinsOverFileAndFlag) {
  const auto off =
      parse_settings("[gpu]\nresident = true\n", "a.toml",
                     {.environment = {"ARCOMM_NO_RESIDENT=1"}, .flags = {"gpu.resident=true"}});
  ASSERT_TRUE(off) << off.error().to_string();
  EXPECT_FALSE(off->settings.gpu.resident);
  EXPECT_THAT(off->warnings, IsEmpty());
  for (const char* entry : {"ARCOMM_NO_RESIDENT=0", "ARCOMM_NO_RESIDENT="}) {
    const auto on = parse_settings("", "a.toml", {.environment = {entry}});
    ASSERT_TRUE(on) << on.error().to_string();
    EXPECT_TRUE(on->settings.gpu.resident) << entry;
  }
}

TEST(LoadSettings, StartsWithDefaultsWithoutAFileUnlessOneWasNamed) {
  const TemporaryFolder folder;
  const auto defaults = load_settings({.path = folder.file("none.toml")});
  ASSERT_TRUE(defaults) << defaults.error().to_string();
  EXPECT_EQ(defaults->path, "");
  const auto named = load_settings({.path = folder.file("none.toml"), .path_must_exist = true});
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, ErrorCode::NotFound);
  EXPECT_THAT(named.error().message, HasSubstr(folder.file("none.toml")));
}

TEST(LoadSettings, ReadsAFileAndNamesItInMistakes) {
  const TemporaryFolder folder;
  const std::string path = folder.file("arcommd.toml");
  std::ofstream(path) << "[wait]\nspin_us = 7\n";
  const auto loaded = load_settings({.path = path, .path_must_exist = true});
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->settings.wait.spin_us, 7u);
  EXPECT_EQ(loaded->path, path);
  std::ofstream(path) << "[wait]\nspin_us = 7777777\n";
  const auto wrong = load_settings({.path = path, .path_must_exist = true});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, StartsWith(path + ":2:1: wait.spin_us"));
}

TEST(LoadSettings, RefusesWhatIsNoRegularFileWithoutWaitingForIt) {
  const TemporaryFolder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto from_fifo = load_settings({.path = fifo, .path_must_exist = true});
  ASSERT_FALSE(from_fifo);
  EXPECT_THAT(from_fifo.error().message, HasSubstr("not a regular file"));
  EXPECT_FALSE(load_settings({.path = folder.file(""), .path_must_exist = true}));
}

TEST(LoadSettings, RefusesAFileThatIsTooLong) {
  EXPECT_THAT(message_of(std::string(2 << 20, '#')), HasSubstr("more than the 1048576"));
}

TEST(LoadSettings, TellsAFileThatCannotBeReadNowFromAWrongOne) {
  const TemporaryFolder folder;
  const std::string path = folder.file("arcommd.toml");
  std::ofstream(path) << "[log]\nlevel = \"debug\"\n";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto now = load_settings({.path = path});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(now);
  EXPECT_EQ(now.error().code, ErrorCode::Unavailable) << now.error().message;
  EXPECT_TRUE(load_settings({.path = path}));
}

TEST(LoadSettings, SurvivesDeepNestingAndStrayBytes) {
  EXPECT_NE(message_of("a = " + std::string(5000, '[')), "(accepted)");
  std::string dotted = "a";
  for (int i = 0; i < 500; ++i) dotted += ".a";
  EXPECT_NE(message_of(dotted + " = 1\n"), "(accepted)");
  EXPECT_NE(message_of(std::string("\xff\xfe\x00[log", 7)), "(accepted)");
}

TEST(LoadSettings, RefusesControlCharactersInPaths) {
  EXPECT_THAT(message_of("state_dir = \"/tmp/a\\nb\"\n"), HasSubstr("\\u000A"));
}

TEST(LoadRequestFromFlags, PrefersTheFlagThenTheVariableThenTheDefault) {
  ::setenv("ARCOMM_CONFIG", "/tmp/from-variable.toml", 1);
  EXPECT_EQ(load_request("/tmp/from-flag.toml", {}).path, "/tmp/from-flag.toml");
  EXPECT_EQ(load_request("", {}).path, "/tmp/from-variable.toml");
  EXPECT_TRUE(load_request("", {}).path_must_exist);
  ::unsetenv("ARCOMM_CONFIG");
  EXPECT_EQ(load_request("", {}).path, "/etc/arcommd/arcommd.toml");
  EXPECT_FALSE(load_request("", {}).path_must_exist);
}

}  // namespace
}  // namespace arcomm
