#include "daemon/exec/gpu/speculation/prediction.h"

#include <gtest/gtest.h>

namespace arcomm {
namespace {

PlanTuple plans(std::uint32_t index) {
  PlanTuple made{};
  made[0] = {index, 1};
  made[1] = {index + 1000, 1};
  return made;
}

TEST(Prediction, KnowsNothingAtFirst) {
  Prediction prediction;
  EXPECT_EQ(prediction.observe(plans(1)), nullptr);
  EXPECT_EQ(prediction.observe(plans(1)), nullptr);
}

TEST(Prediction, IsSureOfWhatFollowedTwiceInARow) {
  Prediction prediction;
  for (int i = 0; i < 2; ++i) prediction.observe(plans(1));
  const PlanTuple* next = prediction.observe(plans(1));
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(*next, plans(1));
}

TEST(Prediction, LearnsACycle) {
  Prediction prediction;
  for (std::uint32_t i = 0; i < 9; ++i) prediction.observe(plans(i % 3));
  for (std::uint32_t i = 9; i < 15; ++i) {
    const PlanTuple* next = prediction.observe(plans(i % 3));
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(*next, plans((i + 1) % 3));
  }
}

// In place on one buffer: each has the same plans, and another one follows.
TEST(Prediction, TellsApartWhatAGraphHolds) {
  Prediction prediction;
  const auto captured = [](std::uint32_t identity) {
    PlanTuple made = plans(1);
    made.identity = identity;
    return made;
  };
  for (std::uint32_t i = 0; i < 9; ++i) prediction.observe(captured(1 + i % 3));
  const PlanTuple* next = prediction.after(captured(2));
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(*next, captured(3));
  EXPECT_EQ(prediction.after(plans(1)), nullptr);
}

TEST(Prediction, IsNotSureAfterAMistake) {
  Prediction prediction;
  for (int i = 0; i < 5; ++i) prediction.observe(plans(1));
  prediction.observe(plans(2));
  EXPECT_EQ(prediction.observe(plans(1)), nullptr);
  EXPECT_EQ(prediction.observe(plans(1)), nullptr);
  EXPECT_NE(prediction.observe(plans(1)), nullptr);
}

TEST(Prediction, ForgetsTheOldestOfTooMany) {
  Prediction prediction;
  for (int round = 0; round < 4; ++round) {
    for (std::uint32_t i = 0; i < Prediction::kEntries + 1; ++i)
      EXPECT_EQ(prediction.observe(plans(i)), nullptr);
  }
  for (std::uint32_t i = 0; i < 9; ++i) prediction.observe(plans(i % 3));
  EXPECT_NE(prediction.observe(plans(0)), nullptr);
}

}  // namespace
}  // namespace arcomm
