#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "client/arctl/verbs.h"

namespace arcomm::arctl {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct CommandLine {
  CommandLine() { build_command_line(app, invocation); }
  void parse(const std::string& words) { app.parse(words); }

  CLI::App app;
  Invocation invocation;
};

std::vector<std::string> shown_verbs(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (!verb->get_group().empty()) names.push_back(verb->get_name());
  }
  return names;
}

TEST(CommandLine, TakesSharedOptionsBeforeAndBehindTheVerb) {
  CommandLine before, behind;
  before.parse("--json --timeout 2.5 status");
  behind.parse("status --json --timeout 2.5");
  for (const CommandLine* line : {&before, &behind}) {
    EXPECT_TRUE(line->invocation.json);
    EXPECT_EQ(line->invocation.timeout_or(10), std::chrono::milliseconds(2500));
    EXPECT_TRUE(line->invocation.action);
  }
}

TEST(CommandLine, WatchesEverySecondUnlessToldOtherwise) {
  CommandLine alone, told, never;
  alone.parse("sessions --watch");
  told.parse("sessions --watch 0.5");
  never.parse("sessions");
  EXPECT_EQ(alone.invocation.watch_s, 1.0);
  EXPECT_EQ(told.invocation.watch_s, 0.5);
  EXPECT_EQ(never.invocation.watch_s, std::nullopt);
}

TEST(CommandLine, RefusesWhatItDoesNotKnow) {
  for (const char* words : {"",
                            "statsu",
                            "status --nope",
                            "status --watch 0",
                            "status --watch x",
                            "bench -r 65",
                            "bench --timing fast",
                            "bench --plan --timing throughput",
                            "bench --peers nccl",
                            "bench --device gpu --peers mpi",
                            "bench --device gpu --memory heap",
                            "bench --device gpu --gpus 0,0",
                            "bench --network --ranks 4",
                            "bench --network -b 1K",
                            "bench --peer 10.0.0.2:7400",
                            "completion fish",
                            "completion",
                            "status --timeout -1",
                            "tune --ranks 4",
                            "tune --dtype float16",
                            "tune --nodes 4",
                            "tune --explain 64K --nodes 1",
                            "tune --explain 64K --dry-run",
                            "tune --explain 64K --budget 3",
                            "check --device gp",
                            "check -e big",
                            "check --gpus 0,0",
                            "check --gpus 0,1,2,3,4,5,6,7,8"}) {
    CommandLine line;
    EXPECT_THROW(line.parse(words), CLI::ParseError) << words;
  }
}

// What arctl says on standard error of a command line that it refuses.
std::string refusal_of(const std::string& words) {
  CommandLine line;
  try {
    line.parse(words);
  } catch (const CLI::ParseError& refusal) {
    std::ostringstream out, told;
    EXPECT_NE(line.app.exit(refusal, out, told), 0);
    return told.str();
  }
  return "";
}

TEST(CommandLine, NamesTheVerbThatAMisspeltOneWasMeantToBe) {
  EXPECT_THAT(refusal_of("statsu"),
              ::testing::StartsWith("arctl has no subcommand statsu: did you mean status?\n"));
  EXPECT_THAT(refusal_of("--json trcae --last 3"), HasSubstr("did you mean trace?"));
  EXPECT_THAT(refusal_of("xyzzyxyzzy"),
              ::testing::StartsWith("arctl has no subcommand xyzzyxyzzy\n"));
  EXPECT_THAT(refusal_of("ranks"), Not(HasSubstr("did you mean rank?")));  // hidden
  EXPECT_THAT(refusal_of(""), HasSubstr("A subcommand is required"));
}

TEST(CommandLine, NamesTheOptionThatAMisspeltOneWasMeantToBe) {
  EXPECT_THAT(refusal_of("status --setings"),
              HasSubstr("arctl status has no option --setings: did you mean --settings?"));
  EXPECT_THAT(refusal_of("trace --lst=3"), HasSubstr("--lst: did you mean --last?"));
  EXPECT_THAT(refusal_of("status --jsn"), HasSubstr("did you mean --json?"));
  EXPECT_THAT(refusal_of("--jsn"), HasSubstr("arctl has no option --jsn: did you mean --json?"));
  EXPECT_THAT(refusal_of("--last 3 trace"), HasSubstr("--last belongs to trace"));
}

TEST(CommandLine, NamesAWordTooManyAndKeepsControlCharactersOffTheTerminal) {
  EXPECT_THAT(refusal_of("status foo"), HasSubstr("takes no further argument: foo"));
  EXPECT_THAT(refusal_of("sta\x1b[2J"), Not(HasSubstr("\x1b")));
}

TEST(CommandLine, TakesTheNetworkWithItsPeersInThePlaceOfRanks) {
  for (const char* words :
       {"bench --network", "bench --network --peer 10.0.0.2:7400 --peer 10.0.0.3:7400 --json"}) {
    CommandLine line;
    EXPECT_NO_THROW(line.parse(words)) << words;
    EXPECT_TRUE(line.invocation.action);
  }
}

TEST(CommandLine, TakesListsOfGpusAndPeers) {
  CommandLine line;
  line.parse("bench --device gpu --gpus 0,1,3 --peers nccl,nccl-symmetric --mode graph --json");
  EXPECT_TRUE(line.invocation.action);
  EXPECT_EQ(line.app.get_subcommand("bench")->get_option("--gpus")->results().size(), 3u);
  EXPECT_EQ(line.app.get_subcommand("bench")->get_option("--peers")->results().size(), 2u);
}

// Command lines of arctl in `text`, each from its name to where the shell takes over.
std::vector<std::string> examples_in(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find("arctl ");
    if (begin == std::string::npos) continue;
    const std::size_t from = begin + std::string("arctl ").size();
    found.push_back(line.substr(from, line.find_first_of("|>)", from) - from));
  }
  return found;
}

TEST(CommandLine, TakesTheExamplesOfEveryVerbsHelp) {
  CommandLine asked;
  for (const std::string& verb : shown_verbs(asked.app)) {
    const std::string help = asked.app.get_subcommand(verb)->help();
    const std::size_t at = help.find("For instance:");
    ASSERT_NE(at, std::string::npos) << verb;
    const std::vector<std::string> examples = examples_in(help.substr(at));
    EXPECT_FALSE(examples.empty()) << verb;
    for (const std::string& words : examples) {
      CommandLine line;
      EXPECT_NO_THROW(line.parse(words)) << words;
      EXPECT_THAT(words, ::testing::StartsWith(verb));
      EXPECT_TRUE(line.invocation.action) << words;
    }
  }
}

TEST(CommandLine, HidesTheRankVerb) {
  CommandLine line;
  EXPECT_THAT(line.app.help(), Not(HasSubstr("\n  rank ")));
  EXPECT_THAT(shown_verbs(line.app), Not(::testing::Contains("rank")));
}

TEST(Completion, OffersEveryVerbAndItsOptions) {
  CommandLine line;
  for (const std::string& verb : shown_verbs(line.app)) {
    EXPECT_THAT(bash_completion(line.app), HasSubstr("    " + verb + ") words='"));
    EXPECT_THAT(zsh_completion(line.app), HasSubstr("    '" + verb + ":"));
  }
  EXPECT_THAT(bash_completion(line.app), HasSubstr("--explain"));
}

// arctl.1 with plain hyphens.
std::string man_page() {
  const char* path = std::getenv("ARCTL_MAN_PAGE");
  if (path == nullptr) return "";
  std::stringstream page;
  page << std::ifstream(path).rdbuf();
  std::string text = page.str();
  for (std::size_t at = text.find("\\-"); at != std::string::npos; at = text.find("\\-", at))
    text.replace(at, 2, "-");
  return text;
}

TEST(ManPage, DescribesEveryVerbAndEveryLongOption) {
  const std::string text = man_page();
  ASSERT_FALSE(text.empty()) << "the test's environment names the manual page";
  CommandLine line;
  const auto verbs = shown_verbs(line.app);
  EXPECT_EQ(verbs.size(), 12u);
  for (const std::string& verb : verbs) {
    EXPECT_TRUE(text.find("\n.BR " + verb + " ") != std::string::npos ||
                text.find("\n.B " + verb + "\n") != std::string::npos)
        << verb << " is not in arctl.1";
    for (const CLI::Option* option : line.app.get_subcommand(verb)->get_options()) {
      for (const std::string& name : option->get_lnames())
        EXPECT_THAT(text, HasSubstr("--" + name)) << verb;
    }
  }
}

TEST(ManPage, HasExamplesThatArctlTakes) {
  const std::string page = man_page();
  const std::size_t begin = page.find("\n.SH EXAMPLES\n");
  ASSERT_NE(begin, std::string::npos);
  const std::vector<std::string> examples =
      examples_in(page.substr(begin, page.find("\n.fi", begin) - begin));
  EXPECT_GE(examples.size(), 5u);
  for (const std::string& words : examples) {
    CommandLine line;
    EXPECT_NO_THROW(line.parse(words)) << words;
  }
}

TEST(ManPage, SaysTheDefaultsOfBenchAndCheck) {
  const std::string page = man_page();
  CommandLine line;
  std::size_t defaults = 0;
  for (const std::string verb : {"check", "bench"}) {
    const std::size_t begin = page.find("\n.BR " + verb + " ");
    ASSERT_NE(begin, std::string::npos);
    const std::string described = page.substr(begin, page.find("\n.RE", begin) - begin);
    for (const CLI::Option* option : line.app.get_subcommand(verb)->get_options()) {
      const std::string value = option->get_default_str();
      if (value.empty()) continue;
      ++defaults;
      const std::string name = "--" + option->get_lnames().front();
      // Its first line: the option's names, and behind a quote what it takes.
      const std::size_t entry = described.find(name + " \"");
      ASSERT_NE(entry, std::string::npos) << verb << " has no entry for " << name;
      EXPECT_THAT(
          described.substr(entry, described.find("\n.TP", entry) - entry),
          AnyOf(HasSubstr(" " + value + " by default"), HasSubstr("(" + value + ", by default)"),
                HasSubstr(" " + value + ", by default"), HasSubstr(" " + value + " (by default)"),
                HasSubstr("By default " + value + ":")))
          << verb;
    }
  }
  EXPECT_EQ(defaults, 12u);
}

}  // namespace
}  // namespace arcomm::arctl
