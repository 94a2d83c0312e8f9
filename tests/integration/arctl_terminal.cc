// arctl as an operator sees it: on a terminal, with somebody at the keyboard.
#include <gtest/gtest.h>

#include "tests/integration/node_test.h"
#include "tests/support/processes/terminal_process.h"

namespace arcomm::support {
namespace {

constexpr std::string_view kCtrlC = "\x03";
constexpr std::string_view kClear = "\x1b[H\x1b[2J";

class ArctlOnATerminal : public NodeTest {
 protected:
  std::unique_ptr<TerminalProcess> arctl_on_terminal(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), arctl_binary());
    return TerminalProcess::start(std::move(arguments), node().environment());
  }
  static void expect_end(TerminalProcess& arctl, int code) {
    const std::optional<Exit> exit = arctl.wait(milliseconds(10000));
    ASSERT_TRUE(exit.has_value()) << "arctl goes on:\n" << arctl.screen();
    EXPECT_EQ(exit->signal, 0) << "it was killed by the key and could not tidy up";
    EXPECT_EQ(exit->code, code) << arctl.screen();
    EXPECT_EQ(arctl.left_behind(), "") << "stayed on the terminal";
  }
};

TEST_F(ArctlOnATerminal, StatusWatchRedrawsInPlaceUntilCtrlC) {
  start();
  const auto watch = arctl_on_terminal({"status", "--watch", "0.1"});
  ASSERT_NE(watch, nullptr);
  ASSERT_TRUE(watch->wait_for(kClear, 2, milliseconds(10000))) << watch->screen();
  // A new session appears by itself: it is the live state that is drawn again.
  EXPECT_NE(watch->screen().find("0 sessions"), std::string::npos) << watch->screen();
  const auto client = ClientProcess::start(node());
  client->expect_ok("init");
  EXPECT_TRUE(watch->wait_for("1 session,", 2, milliseconds(10000))) << watch->screen();
  watch->type(kCtrlC);
  expect_end(*watch, 0);
  EXPECT_EQ(count_of(watch->screen(), "serving"), count_of(watch->screen(), kClear))
      << "a frame was drawn below another";
}

TEST_F(ArctlOnATerminal, AWatchSaysSoWhenTheDaemonGoesAway) {
  start();
  const auto watch = arctl_on_terminal({"status", "--watch", "0.1"});
  ASSERT_NE(watch, nullptr);
  ASSERT_TRUE(watch->wait_for(kClear, 2, milliseconds(10000)));
  node().kill();
  expect_end(*watch, 3);
  EXPECT_NE(watch->screen().find("arctl: "), std::string::npos) << watch->screen();
}

TEST_F(ArctlOnATerminal, TuneDrawsABarOverItselfAndThenTheTable) {
  start();
  const auto tune = arctl_on_terminal({"tune", "--dry-run", "--max-size", "64K", "--budget", "1"});
  ASSERT_NE(tune, nullptr);
  expect_end(*tune, 0);
  const std::string& drawn = tune->screen();
  EXPECT_GE(count_of(drawn, "\r["), 3u) << drawn;
  const std::size_t bar = drawn.rfind("\r["), wiped = drawn.rfind("\r\x1b[K"),
                    table = drawn.find("ALGORITHM");
  EXPECT_NE(drawn.find("100 %"), std::string::npos) << drawn;
  ASSERT_TRUE(wiped != std::string::npos && table != std::string::npos) << drawn;
  EXPECT_LT(bar, wiped) << "the bar stays beside the table";
  EXPECT_LT(wiped, table);
  // One line the whole time: it is drawn over, not scrolled.
  EXPECT_EQ(drawn.substr(0, wiped).find('\n'), std::string::npos) << drawn.substr(0, wiped);
  EXPECT_NE(drawn.find("nothing was saved"), std::string::npos) << drawn;
}

TEST_F(ArctlOnATerminal, CtrlCEndsATuneAndTheNodeTunesAgain) {
  // So that what is drawn is the daemon's progress, and not what arctl measures itself.
  DaemonProcess::Options options;
  options.settings["host.in_call_bytes"] = "0";
  start(options);
  const auto tune = arctl_on_terminal({"tune", "--dry-run", "--budget", "60"});
  ASSERT_NE(tune, nullptr);
  ASSERT_TRUE(tune->wait_for("\r[", 2, milliseconds(20000))) << tune->screen();
  tune->type(kCtrlC);
  const std::optional<Exit> exit = tune->wait(milliseconds(5000));
  ASSERT_TRUE(exit.has_value()) << tune->screen();
  // What a shell calls 130.
  EXPECT_TRUE(exit->signal == SIGINT || exit->code == 130) << exit->code << " " << exit->signal;
  EXPECT_EQ(tune->left_behind(), "");
  EXPECT_TRUE(eventually(milliseconds(20000), [&] {
    return arctl(node(), {"tune", "--dry-run", "--max-size", "4K", "--budget", "0.2"}).code == 0;
  })) << "the daemon still measures for somebody who left";
}

TEST_F(ArctlOnATerminal, DiagnoseNamesTheStuckRankItsProcessAndItsLastCall) {  // 21
  start();
  const Clients clients = start_ranks(node(), 3, "init 20000");
  expect_all_ok(clients, "allreduce c0 10 float32 sum n=4");
  clients[0]->tell("allreduce c0 10 float32 sum");
  clients[2]->tell("allreduce c0 10 float32 sum");
  const std::string pid = std::to_string(clients[1]->pid());
  std::string drawn;
  EXPECT_TRUE(eventually(milliseconds(10000), [&] {
    const auto diagnose = arctl_on_terminal({"diagnose"});
    if (diagnose == nullptr) return true;
    const std::optional<Exit> exit = diagnose->wait(milliseconds(10000));
    drawn = diagnose->screen();
    EXPECT_EQ(diagnose->left_behind(), "");
    // Before it has seen both calls it says that two ranks are behind.
    return exit.has_value() && exit->code == 6 && drawn.find("ranks 0,2 wait") != drawn.npos;
  })) << drawn;
  EXPECT_NE(drawn.find("rank 1 (pid " + pid), std::string::npos) << drawn;
  const std::size_t line = drawn.find("  rank 1  pid " + pid + "  called 4");
  ASSERT_NE(line, std::string::npos) << drawn;
  const std::string marked = drawn.substr(line, drawn.find('\n', line) - line);
  EXPECT_NE(marked.find("\x1b[33m  <- behind\x1b[0m"), std::string::npos) << marked;
  EXPECT_EQ(count_of(drawn, "<- behind"), 1u) << drawn;
  clients[1]->expect_ok("allreduce c0 10 float32 sum");
  EXPECT_TRUE(clients[0]->hear().ok());
  EXPECT_TRUE(clients[2]->hear().ok());
  EXPECT_EQ(arctl(node(), {"diagnose"}).code, 0) << "healthy again";
}

TEST_F(ArctlOnATerminal, DiagnoseMarksEveryRankThatIsBehind) {
  start();
  const Clients clients = start_ranks(node(), 3, "init 20000");
  clients[2]->tell("allreduce c0 10 float32 sum");
  ArctlRun diagnosed;
  EXPECT_TRUE(eventually(milliseconds(10000), [&] {
    diagnosed = arctl(node(), {"diagnose"});
    return diagnosed.code == 6;
  })) << diagnosed.output;
  EXPECT_EQ(count_of(diagnosed.output, "<- behind"), 2u) << diagnosed.output;
  EXPECT_EQ(count_of(diagnosed.output, "called 0  <- behind"), 2u) << diagnosed.output;
  clients[0]->tell("allreduce c0 10 float32 sum");
  clients[1]->expect_ok("allreduce c0 10 float32 sum");
  EXPECT_TRUE(clients[0]->hear().ok());
  EXPECT_TRUE(clients[2]->hear().ok());
}

}  // namespace
}  // namespace arcomm::support
