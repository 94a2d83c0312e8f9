#include "daemon/control/access/flood_budget.h"

#include <gtest/gtest.h>

namespace arcomm::test {
namespace {

constexpr std::uint64_t kFloodSecondNs = 1'000'000'000;
constexpr std::uint64_t kFloodNow = 5 * kFloodSecondNs;
constexpr uid_t kFloodUid = 1000;
constexpr std::uint64_t kFloodResets = FloodBudget::kOfConnection.resets.burst;
constexpr std::uint64_t kFloodOthers = FloodBudget::kOfConnection.others.burst;

TEST(FloodBudget, AConnectionMayResetSoManyCallsAtOnceAndThenSoManyASecond) {
  FloodBudget budget;
  FloodBudget::Connection connection;
  EXPECT_TRUE(budget.pay(connection, kFloodUid, {.resets = kFloodResets}, kFloodNow));
  const Status refused = budget.pay(connection, kFloodUid, {.resets = 1}, kFloodNow);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, Reason::Quota);
  EXPECT_NE(refused.error().message.find("the connection brought more than 256 calls that were "
                                         "reset at once and 100 a second"),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(budget.pay(connection, kFloodUid, {.resets = 100}, kFloodNow + kFloodSecondNs));
  EXPECT_FALSE(budget.pay(connection, kFloodUid, {.resets = 1}, kFloodNow + kFloodSecondNs));
}

TEST(FloodBudget, CallsThatAreNotResetCostNothingAndBringOtherFramesAlong) {
  FloodBudget budget;
  FloodBudget::Connection connection;
  for (int i = 0; i < 1'000'000; ++i)
    ASSERT_TRUE(budget.pay(connection, kFloodUid, {.calls = 1, .others = 3}, kFloodNow));
  FloodBudget::Connection idle;
  EXPECT_TRUE(budget.pay(idle, kFloodUid, {.others = kFloodOthers}, kFloodNow));
  EXPECT_FALSE(budget.pay(idle, kFloodUid, {.others = 1}, kFloodNow));
}

// Or a hundred calls would pay for thousands of frames a day later.
TEST(FloodBudget, WhatCallsBringAlongIsNotSaved) {
  FloodBudget budget;
  FloodBudget::Connection connection;
  EXPECT_TRUE(budget.pay(connection, kFloodUid, {.calls = 1'000'000}, kFloodNow));
  EXPECT_FALSE(budget.pay(connection, kFloodUid, {.others = kFloodOthers + 1'000}, kFloodNow));
}

TEST(FloodBudget, ManyConnectionsOfOnePersonShareABudgetAndLeaveAnotherItsOwn) {
  FloodBudget budget;
  constexpr uid_t kUidOfRange = 200'000;
  std::uint64_t resets = 0;
  Status status;
  for (uid_t uid = kUidOfRange; status && uid < kUidOfRange + 100; ++uid) {
    FloodBudget::Connection connection;
    if ((status = budget.pay(connection, uid, {.resets = kFloodResets}, kFloodNow)))
      resets += kFloodResets;
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(resets, FloodBudget::kOfUser.resets.burst);
  EXPECT_NE(status.error().message.find("and its range"), std::string::npos)
      << status.error().message;
  FloodBudget::Connection other;
  EXPECT_TRUE(budget.pay(other, kFloodUid, {.resets = kFloodResets}, kFloodNow));
  EXPECT_TRUE(budget.shuts_out(kUidOfRange + 60'000, kFloodNow));
  EXPECT_FALSE(budget.shuts_out(kUidOfRange, kFloodNow + FloodBudget::kShutOutNs));
  EXPECT_FALSE(budget.shuts_out(kFloodUid, kFloodNow));
}

TEST(FloodBudget, OneConnectionThatBringsTooMuchShutsNobodyOut) {
  FloodBudget budget;
  FloodBudget::Connection connection;
  EXPECT_FALSE(budget.pay(connection, kFloodUid, {.resets = kFloodResets + 1}, kFloodNow));
  EXPECT_FALSE(budget.shuts_out(kFloodUid, kFloodNow));
}

}  // namespace
}  // namespace arcomm::test
