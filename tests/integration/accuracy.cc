// `arctl bench --accuracy` against a real daemon: what is published of codecs holds on every
// element, and signal over noise is what was found for these formats before they were built.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/integration/node_test.h"
#include "tests/support/scratch_folder.h"

namespace arcomm::support {
namespace {

class Accuracy : public NodeTest {
 protected:
  nlohmann::json rows(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"bench", "--accuracy", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ArctlRun ran = arctl(node(), words, milliseconds(120'000));
    EXPECT_EQ(ran.code, 0) << ran.errors;
    const nlohmann::json all = ran.json();
    EXPECT_TRUE(all.contains("accuracy")) << all.dump();
    return all.value("accuracy", nlohmann::json::array());
  }
  static void expect_within_bounds(const nlohmann::json& rows) {
    for (const nlohmann::json& row : rows) {
      EXPECT_EQ(row["beyond"], 0) << row.dump();
      EXPECT_LE(row["error_over_bound"], 1) << row.dump();
      EXPECT_LT(std::fabs(row["bias"].get<double>()), 0.01) << row.dump();
      if (row["codec"] == "none") continue;
      EXPECT_LE(row["error_over_largest"], row["published_error_over_largest"]) << row.dump();
    }
  }
};

TEST_F(Accuracy, EveryCodecKeepsWhatIsPublishedAndWhatWasFoundBeforeItWasBuilt) {
  start();
  const nlohmann::json found = rows({});
  ASSERT_EQ(found.size(), 4 * 8u);
  expect_within_bounds(found);
  const std::map<std::string, std::map<std::string, double>> kTable = {
      {"gaussian", {{"fp8", 32.4}, {"q8", 45.5}, {"q6", 33.5}, {"q4", 21.3}}},
      {"heavy-tailed", {{"fp8", 34.2}, {"q8", 41.5}, {"q6", 29.5}, {"q4", 17.9}}}};
  std::size_t compared = 0;
  for (const nlohmann::json& row : found) {
    const auto data = kTable.find(row["data"].get<std::string>());
    if (data == kTable.end()) continue;
    const auto decibels = data->second.find(row["codec"].get<std::string>());
    if (decibels == data->second.end()) continue;
    EXPECT_NEAR(row["snr_db"].get<double>(), decibels->second, 0.3) << row.dump();
    ++compared;
  }
  EXPECT_EQ(compared, 8u);
  for (const nlohmann::json& row : found) {
    if (!row["published_snr_db"].is_number()) continue;
    EXPECT_GE(row["snr_db"].get<double>(), row["published_snr_db"].get<double>() - 0.05)
        << row.dump();
  }
}

TEST_F(Accuracy, TheBoundsHoldForHalvesAndForAverages) {
  start();
  for (const char* dtype : {"float16", "bfloat16"})
    expect_within_bounds(rows({"-d", dtype, "-o", "avg", "-r", "3"}));
}

TEST_F(Accuracy, RecordedDataAreJudgedAsWell) {
  start();
  const ScratchFolder folder;
  std::vector<float> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i)) * static_cast<float>(i % 97);
  std::ofstream(folder / "data", std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  const nlohmann::json found = rows({"--codec", "q6_rotated", "--data", folder / "data"});
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[4]["data"], "recorded");
  EXPECT_EQ(found[4]["elements"], 50'000);
  expect_within_bounds(found);
}

TEST_F(Accuracy, ATableIsPrintedForPeople) {
  start();
  const auto ran = arctl(node(), {"bench", "--accuracy", "--codec", "q4"});
  EXPECT_EQ(ran.code, 0) << ran.errors;
  for (const char* word : {"# all_reduce, 2 ranks, sum of float32", "gaussian", "heavy-tailed",
                           "outlier-channels", "adversarial", "q4", "0.12891"}) {
    EXPECT_NE(ran.output.find(word), std::string::npos) << word << " in\n" << ran.output;
  }
}

TEST_F(Accuracy, WhatMakesNoSenseIsRefusedBeforeAnythingRuns) {
  start();
  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"bench", "--accuracy"};
    words.insert(words.end(), more.begin(), more.end());
    const auto ran = arctl(node(), words);
    EXPECT_GT(ran.code, 0);
    return ran.errors;
  };
  EXPECT_NE(refused({"--data", "/nonexistent/data"}).find("/nonexistent/data"), std::string::npos);
  EXPECT_NE(refused({"-d", "int32"}).find("codecs serve sum and avg"), std::string::npos);
  EXPECT_NE(refused({"--timing", "p50"}).find("--timing"), std::string::npos);
}

}  // namespace
}  // namespace arcomm::support
