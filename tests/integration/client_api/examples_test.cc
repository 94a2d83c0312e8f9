// The example programs do what their README says, over a real daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/processes/child_process.h"
#include "tests/support/processes/daemon_process.h"
#include "tests/support/scratch_folder.h"

namespace arcomm::support {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class Examples : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_ = DaemonProcess::start();
    ASSERT_NE(daemon_, nullptr);
  }
  void TearDown() override {
    if (daemon_) daemon_->stop();
  }
  Ran run_language_model(std::vector<std::string> arguments) {
    std::vector<std::string> command = {ARCOMM_TENSOR_PARALLEL_LM, "--quick"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_to_end(command, daemon_->environment(), seconds(120));
  }
  void expect_equal_to_one_process(const Ran& ran) {
    ASSERT_TRUE(ran.exit.has_value()) << "still running after its deadline:\n"
                                      << ran.output << ran.errors;
    EXPECT_TRUE(ran.exit->clean()) << ran.output << ran.errors;
    EXPECT_THAT(
        ran.output,
        HasSubstr(
            "tokens equal those of the one-process run: yes; logits equal, bit for bit: yes"));
  }

  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(Examples, TwoRanksOfTheLanguageModelGenerateTheOneProcessRunsTokens) {
  expect_equal_to_one_process(run_language_model({"--ranks", "2"}));
}

TEST_F(Examples, AnUnevenCutOverThreeRanksDoesToo) {
  const Ran ran =
      run_language_model({"--ranks", "3", "--prompt", "The ", "--prompt", "A daemon that",
                          "--prompt", std::string(90, 'x'), "--tokens", "40"});
  expect_equal_to_one_process(ran);
}

TEST_F(Examples, TheLanguageModelSaysThatNoDaemonRuns) {
  const ScratchFolder nowhere;
  const Ran ran = run_to_end({ARCOMM_TENSOR_PARALLEL_LM, "--quick", "--train-steps", "2"},
                             {"ARCOMM_RUNTIME_DIR=" + nowhere.path()}, seconds(60));
  ASSERT_TRUE(ran.exit.has_value());
  EXPECT_EQ(ran.exit->code, 1);
  EXPECT_THAT(ran.errors, HasSubstr("rank 0: "));
  EXPECT_THAT(ran.errors, HasSubstr(nowhere.path()));
}

TEST_F(Examples, TheLanguageModelSaysWhichFileIsMissing) {
  const Ran ran = run_language_model({"/nonexistent/text"});
  ASSERT_TRUE(ran.exit.has_value());
  EXPECT_EQ(ran.exit->code, 1);
  EXPECT_THAT(ran.errors, HasSubstr("/nonexistent/text"));
}

TEST_F(Examples, FourProcessesOfTheMinimalProgramAddUp) {
  constexpr int kRanks = 4;
  const ScratchFolder folder;
  std::vector<std::string> logs;
  std::vector<ChildProcess> processes;
  for (int rank = 0; rank < kRanks; ++rank) {
    logs.push_back(folder / ("rank" + std::to_string(rank)));
    ChildOptions options;
    options.command = {ARCOMM_MINIMAL_ALLREDUCE, std::to_string(rank), std::to_string(kRanks),
                       folder / "id"};
    options.environment = daemon_->environment();
    options.log_path = logs.back();
    auto process = ChildProcess::start(options);
    ASSERT_TRUE(process.has_value());
    processes.push_back(*std::move(process));
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::optional<Exit> exit = processes[static_cast<std::size_t>(rank)].wait(seconds(60));
    const std::string said = read_text(logs[static_cast<std::size_t>(rank)]);
    ASSERT_TRUE(exit.has_value()) << "rank " << rank << " is still running: " << said;
    EXPECT_TRUE(exit->clean()) << said;
    EXPECT_EQ(said, "rank " + std::to_string(rank) + " of 4: 1 + ... + 4 = 10\n");
  }
}

}  // namespace
}  // namespace arcomm::support
