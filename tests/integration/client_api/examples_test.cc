// The example programs do what their README says, over a real daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/processes/arctl_run.h"
#include "tests/support/processes/child_process.h"
#include "tests/support/processes/daemon_process.h"
#include "tests/support/scratch_folder.h"

namespace arcomm::support {
namespace {

using std::chrono::seconds;
using ::testing::ContainsRegex;
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

TEST_F(Examples, TheLanguageModelRunsThroughACodecAndTellsTheChangeOfItsLoss) {
  const Ran ran = run_language_model({"--codec", "q8"});
  ASSERT_TRUE(ran.exit.has_value()) << ran.output << ran.errors;
  EXPECT_TRUE(ran.exit->clean()) << ran.output << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("all ranks have the same logits, bit for bit: yes"));
  EXPECT_THAT(ran.output, ContainsRegex("loss with codec q8 +[0-9.]+ nats per byte, [+-][0-9.]+"));
}

TEST_F(Examples, TheLanguageModelTellsTheLossOfEveryCodecAndNoneOfNone) {
  const Ran ran = run_language_model({"--codec", "all", "--tokens", "8"});
  expect_equal_to_one_process(ran);
  for (const char* codec : {"fp8", "q8", "q6", "q4", "q8_rotated", "q6_rotated", "q4_rotated"})
    EXPECT_THAT(ran.output, ContainsRegex("loss with codec " + std::string(codec) + " +[0-9.]+"));
  EXPECT_THAT(ran.output, ContainsRegex("loss with codec none +[0-9.]+ nats per byte, .0.000000"));
}

TEST_F(Examples, WhatTheLanguageModelSumsIsRecordedForTheBenchOfAccuracy) {
  const ScratchFolder folder;
  const std::string path = folder / "activations";
  expect_equal_to_one_process(run_language_model({"--record", path}));
  EXPECT_GT(std::filesystem::file_size(path), 100'000u);
  EXPECT_FALSE(std::filesystem::exists(path + ".0"));
  const nlohmann::json judged =
      arctl_json(*daemon_, {"bench", "--accuracy", "--codec", "q6", "--data", path});
  ASSERT_TRUE(judged.contains("accuracy")) << judged.dump();
  const nlohmann::json recorded = judged["accuracy"].back();
  EXPECT_EQ(recorded["data"], "recorded");
  EXPECT_EQ(recorded["beyond"], 0);
  EXPECT_GT(recorded["snr_db"], 15);
}

TEST_F(Examples, TheLanguageModelSaysWhichCodecsThereAreAndWhereItCannotRecord) {
  const Ran codec = run_language_model({"--codec", "q5"});
  ASSERT_TRUE(codec.exit.has_value());
  EXPECT_EQ(codec.exit->code, 2);
  EXPECT_THAT(codec.errors, HasSubstr("q4_rotated, or all, not \"q5\""));
  const Ran nowhere = run_language_model({"--record", "/nonexistent/file", "--train-steps", "2"});
  ASSERT_TRUE(nowhere.exit.has_value());
  EXPECT_EQ(nowhere.exit->code, 1);
  EXPECT_THAT(nowhere.errors, HasSubstr("/nonexistent/file"));
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
