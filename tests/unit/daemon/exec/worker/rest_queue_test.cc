// Who may stop the GPUs for all, and how often.
#include "daemon/exec/worker/rest_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace arcomm {
namespace {

constexpr uid_t kHostileUser = 1000, kOtherUser = 1001;
constexpr std::uint64_t kMs = 1'000'000;

class RestQueueTest : public ::testing::Test {
 protected:
  void ask(std::vector<uid_t> uids, std::uint64_t cost = 1) {
    queue_.add({.uids = std::move(uids),
                .cost = cost,
                .act = [this] { ++acted_; },
                .refuse =
                    [this](const Error& why) {
                      ++refused_;
                      why_ = why;
                    }},
               now_);
  }
  // Rests that it takes until nothing of it is due.
  int run() {
    int rests = 0;
    for (auto due = queue_.take(now_); !due.empty(); due = queue_.take(now_), ++rests) {
      for (const auto& request : due) request.act();
    }
    return rests;
  }

  RestQueue queue_;
  std::uint64_t now_ = 1'000'000 * kMs;
  int acted_ = 0, refused_ = 0;
  Error why_;
};

TEST_F(RestQueueTest, AFewAreDueAtOnceAndShareOneRest) {
  for (int i = 0; i < 5; ++i) ask({kOtherUser});
  EXPECT_EQ(queue_.next_ns(now_), now_);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(acted_, 5);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.next_ns(now_), ~std::uint64_t{0});
}

TEST_F(RestQueueTest, WhoAsksForMoreWaitsAndNobodyElseDoes) {
  for (std::uint64_t i = 0; i < RestQueue::kOfUser.burst + 10; ++i) ask({kHostileUser});
  ask({kOtherUser});
  while (run() != 0) {
  }
  EXPECT_EQ(acted_, static_cast<int>(RestQueue::kOfUser.burst) + 1);
  EXPECT_EQ(queue_.next_ns(now_), now_ + RestQueue::kOfUser.interval_ns);
  now_ += 3 * RestQueue::kOfUser.interval_ns;
  run();
  EXPECT_EQ(acted_, static_cast<int>(RestQueue::kOfUser.burst) + 1 + 3);
}

TEST_F(RestQueueTest, ALoopIsHeldToItsRateHoweverLongItGoesOn) {
  int rests = 0;
  const int seconds = 10;
  for (std::uint64_t ms = 0; ms < seconds * 1000; ++ms, now_ += kMs) {
    for (int i = 0; i < 3; ++i) ask({kHostileUser});
    rests += run();
  }
  EXPECT_LE(rests, seconds * 200 + static_cast<int>(RestQueue::kOfUser.burst));
  EXPECT_GT(refused_, 0);
}

TEST_F(RestQueueTest, ManyUsersTogetherAreHeldToTheNodesRate) {
  int rests = 0;
  for (std::uint64_t ms = 0; ms < 1000; ++ms, now_ += kMs) {
    for (uid_t uid = 0; uid < 50; ++uid) ask({2000 + uid});
    rests += run();
  }
  EXPECT_LE(rests, 1000 / 2 + static_cast<int>(RestQueue::kOfAll.burst));
}

// The bursts of one person's many users do not come before another's first.
TEST_F(RestQueueTest, UsersAreServedInTurn) {
  for (uid_t uid = 0; uid < 100; ++uid) {
    for (int i = 0; i < 200; ++i) ask({2000 + uid});
  }
  int mine = 0;
  queue_.add({.uids = {kOtherUser}, .act = [&mine] { ++mine; }, .refuse = {}}, now_);
  const std::uint64_t since = now_;
  for (; mine == 0 && now_ < since + 1000 * kMs; now_ += kMs) run();
  EXPECT_EQ(mine, 1);
  EXPECT_LT(now_ - since, 50 * kMs);
}

TEST_F(RestQueueTest, ARequestThatWouldWaitForLongIsRefusedByWhoseShareItIs) {
  for (std::uint64_t i = 0; i < RestQueue::kOfUser.burst + 500; ++i) ask({kHostileUser});
  EXPECT_EQ(refused_, 100);
  EXPECT_EQ(why_.code, ErrorCode::ResourceExhausted);
  EXPECT_EQ(why_.reason, Reason::Quota);
  EXPECT_NE(why_.message.find("uid 1000"), std::string::npos) << why_.message;
  EXPECT_NE(why_.message.find("try again in"), std::string::npos) << why_.message;
}

TEST_F(RestQueueTest, AJoinIsOnTheShareOfAllItsUsersWithTheLeavesThatFollow) {
  ask({kHostileUser, kOtherUser, kHostileUser}, 4);
  for (std::uint64_t i = 4; i < RestQueue::kOfUser.burst; ++i) ask({kOtherUser});
  while (run() != 0) {
  }
  EXPECT_TRUE(queue_.empty());
  ask({kOtherUser});
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(queue_.next_ns(now_), now_ + RestQueue::kOfUser.interval_ns);
}

TEST_F(RestQueueTest, WhatStillWaitsIsRefusedAtTheEnd) {
  for (std::uint64_t i = 0; i < RestQueue::kOfUser.burst + 10; ++i) ask({kHostileUser});
  queue_.refuse_all(error(ErrorCode::Unavailable, Reason::ShuttingDown, "it stops"));
  EXPECT_EQ(refused_, static_cast<int>(RestQueue::kOfUser.burst) + 10);
  EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace arcomm
