// arcommd(8) against the program: its options, signals, exit statuses, sockets.
#include <gmock/gmock.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "daemon/control/access/listener.h"
#include "daemon/daemon.h"
#include "daemon/exit_status.h"

namespace arcomm {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The page's section of that name, with plain hyphens; "" when there is none.
std::string section(const std::string& name) {
  std::stringstream page;
  page << std::ifstream(variable("ARCOMMD_MAN_PAGE")).rdbuf();
  const std::string text = std::regex_replace(page.str(), std::regex(R"(\\-)"), "-");
  const std::string heading = "\n.SH " + name + "\n";
  const std::size_t from = text.find(heading);
  if (from == std::string::npos) return "";
  const std::size_t begin = from + heading.size();
  return text.substr(begin - 1, text.find("\n.SH ", begin) - begin + 2);
}

std::set<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator one(text.begin(), text.end(), pattern), end; one != end; ++one)
    found.insert((*one)[1]);
  return found;
}

std::string help_of_the_program() {
  const std::string command = "'" + variable("ARCOMMD_PROGRAM") + "' --help";
  FILE* output = ::popen(command.c_str(), "r");
  if (output == nullptr) return "";
  std::string text;
  char piece[4096];
  while (const std::size_t got = std::fread(piece, 1, sizeof(piece), output))
    text.append(piece, got);
  return ::pclose(output) == 0 ? text : "";
}

TEST(ArcommdManual, DescribesTheOptionsOfTheProgramAndNoOther) {
  const std::string help = help_of_the_program();
  ASSERT_THAT(help, HasSubstr("--help")) << "the test's environment names the program";
  const std::set<std::string> options = matches(help, std::regex(R"(\n  (?:-\w,)?(--[a-z-]+))"));
  EXPECT_THAT(options, Contains("--set"));
  // An entry's first line: .TP, then the option in bold.
  EXPECT_THAT(matches(section("OPTIONS"), std::regex(R"(\n\.TP\n\.B[IR]? [^\n]*?(--[a-z-]+))")),
              UnorderedElementsAreArray(options));
}

TEST(ArcommdManual, DescribesEverySignalThatIsTakenUp) {
  const sigset_t taken = blocked_signals();
  const std::set<std::string> described =
      matches(section("SIGNALS"), std::regex(R"((SIG[A-Z0-9]+))"));
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    if (::sigismember(&taken, signal) != 1) continue;
    EXPECT_THAT(described, Contains(std::string("SIG") + ::sigabbrev_np(signal)));
  }
}

TEST(ArcommdManual, ListsEveryExitStatus) {
  const std::string statuses = section("EXIT STATUS");
  for (const ExitStatus status : {kOk, kFailure, kUsage, kAlreadyRunning})
    EXPECT_THAT(statuses, HasSubstr("\n" + std::to_string(status) + "\t"));
}

TEST(ArcommdManual, NamesEverySocket) {
  const std::string files = section("FILES");
  for (const SocketKind kind : {SocketKind::Client, SocketKind::Admin, SocketKind::Descriptor})
    EXPECT_THAT(files, HasSubstr(std::string(file_name_of(kind))));
}

}  // namespace
}  // namespace arcomm
