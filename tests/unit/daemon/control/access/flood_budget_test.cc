#include "daemon/control/access/flood_budget.h"

#include <gtest/gtest.h>

#include <vector>

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

TEST(FloodBudget, AConnectionAndItsUserMayHaveSoManyCallsWithoutAnEnd) {
  FloodBudget budget;
  FloodBudget::Connection one;
  EXPECT_TRUE(budget.keep_open(one, kFloodUid, FloodBudget::kOpenOfConnection));
  const Status refused = budget.keep_open(one, kFloodUid, FloodBudget::kOpenOfConnection + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, Reason::Quota);
  EXPECT_TRUE(budget.keep_open(one, kFloodUid, 1)) << "fewer than before is always right";
  EXPECT_TRUE(budget.keep_open(one, kFloodUid, 0));

  constexpr std::size_t kConnections = FloodBudget::kOpenOfUser / FloodBudget::kOpenOfConnection;
  std::vector<FloodBudget::Connection> many(kConnections);
  for (FloodBudget::Connection& each : many)
    EXPECT_TRUE(budget.keep_open(each, kFloodUid, FloodBudget::kOpenOfConnection));
  EXPECT_FALSE(budget.keep_open(one, kFloodUid, 1)) << "its connections together";
  FloodBudget::Connection of_another;
  EXPECT_TRUE(budget.keep_open(of_another, kFloodUid + 1, 1));
  EXPECT_TRUE(budget.keep_open(one, kFloodUid, 0));
  EXPECT_TRUE(budget.keep_open(many[0], kFloodUid, 0));
  EXPECT_TRUE(budget.keep_open(one, kFloodUid, 1)) << "what has ended is given back";
}

// To begin calls over one connection after the other would be a way around it.
TEST(FloodBudget, CallsThatWereOpenAtAConnectionsEndCountAsReset) {
  FloodBudget budget;
  constexpr std::size_t kConnections =
      FloodBudget::kOfUser.resets.burst / FloodBudget::kOpenOfConnection;
  for (std::size_t i = 0; i < kConnections; ++i) {
    FloodBudget::Connection connection;
    EXPECT_TRUE(budget.keep_open(connection, kFloodUid, FloodBudget::kOpenOfConnection));
    budget.end(connection, kFloodUid, kFloodNow);
    budget.end(connection, kFloodUid, kFloodNow);
    EXPECT_FALSE(budget.shuts_out(kFloodUid, kFloodNow)) << i;
  }
  FloodBudget::Connection one_more;
  EXPECT_TRUE(budget.keep_open(one_more, kFloodUid, 1));
  budget.end(one_more, kFloodUid, kFloodNow);
  EXPECT_TRUE(budget.shuts_out(kFloodUid, kFloodNow));
  EXPECT_FALSE(budget.shuts_out(kFloodUid, kFloodNow + FloodBudget::kShutOutNs));
}

}  // namespace
}  // namespace arcomm::test
