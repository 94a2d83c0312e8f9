// Who may stop the GPUs for all, and how often.
#include "daemon/exec/worker/quiesce/quiesce_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace arcomm {
namespace {

constexpr uid_t kHostileUser = 1000, kOtherUser = 1001;
constexpr std::uint64_t kMs = 1'000'000;

class QuiesceQueueTest : public ::testing::Test {
 protected:
  void ask(std::vector<uid_t> uids, std::uint64_t cost = 1) {
    queue_.add({.uids = std::move(uids),
                .cost = cost,
                .act =
                    [this] {
                      ++acted_;
                      return QuiesceQueue::Try{};
                    },
                .refuse =
                    [this](const Error& why) {
                      ++refused_;
                      why_ = why;
                    }},
               now_);
  }
  // Rests that it takes until nothing of it is due.
  int run() {
    int quiescings = 0;
    for (auto due = queue_.take(now_); !due.empty(); due = queue_.take(now_), ++quiescings) {
      for (const auto& request : due) request.act();
    }
    return quiescings;
  }

  QuiesceQueue queue_;
  std::uint64_t now_ = 1'000'000 * kMs;
  int acted_ = 0, refused_ = 0;
  Error why_;
};

TEST_F(QuiesceQueueTest, AFewAreDueAtOnceAndShareOneQuiescing) {
  for (int i = 0; i < 5; ++i) ask({kOtherUser});
  EXPECT_EQ(queue_.next_ns(now_), now_);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(acted_, 5);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.next_ns(now_), ~std::uint64_t{0});
}

TEST_F(QuiesceQueueTest, WhoAsksForMoreWaitsAndNobodyElseDoes) {
  for (std::uint64_t i = 0; i < QuiesceQueue::kOfUser.burst + 10; ++i) ask({kHostileUser});
  ask({kOtherUser});
  while (run() != 0) {
  }
  EXPECT_EQ(acted_, static_cast<int>(QuiesceQueue::kOfUser.burst) + 1);
  EXPECT_EQ(queue_.next_ns(now_), now_ + QuiesceQueue::kOfUser.interval_ns);
  now_ += 3 * QuiesceQueue::kOfUser.interval_ns;
  run();
  EXPECT_EQ(acted_, static_cast<int>(QuiesceQueue::kOfUser.burst) + 1 + 3);
}

TEST_F(QuiesceQueueTest, ALoopIsHeldToItsRateHoweverLongItGoesOn) {
  int quiescings = 0;
  const int seconds = 10;
  for (std::uint64_t ms = 0; ms < seconds * 1000; ++ms, now_ += kMs) {
    for (int i = 0; i < 3; ++i) ask({kHostileUser});
    quiescings += run();
  }
  EXPECT_LE(quiescings, seconds * 200 + static_cast<int>(QuiesceQueue::kOfUser.burst));
  EXPECT_GT(refused_, 0);
}

TEST_F(QuiesceQueueTest, ManyUsersTogetherAreHeldToTheNodesRate) {
  int quiescings = 0;
  for (std::uint64_t ms = 0; ms < 1000; ++ms, now_ += kMs) {
    for (uid_t uid = 0; uid < 50; ++uid) ask({2000 + uid});
    quiescings += run();
  }
  EXPECT_LE(quiescings, 1000 / 2 + static_cast<int>(QuiesceQueue::kOfAll.burst));
}

// The bursts of one person's many users do not come before another's first.
TEST_F(QuiesceQueueTest, UsersAreServedInTurn) {
  for (uid_t uid = 0; uid < 100; ++uid) {
    for (int i = 0; i < 200; ++i) ask({2000 + uid});
  }
  int mine = 0;
  queue_.add({.uids = {kOtherUser},
              .act =
                  [&mine] {
                    ++mine;
                    return QuiesceQueue::Try{};
                  },
              .refuse = {}},
             now_);
  const std::uint64_t since = now_;
  for (; mine == 0 && now_ < since + 1000 * kMs; now_ += kMs) run();
  EXPECT_EQ(mine, 1);
  EXPECT_LT(now_ - since, 50 * kMs);
}

// A user namespace gives one person 65,536 uids.
TEST_F(QuiesceQueueTest, ManyUidsOfOneRangeHaveTheTurnOfOneUserAndTheBurstOfEight) {
  constexpr uid_t kMapped = 196'608, kUids = 200;
  for (int again = 0; again < 40; ++again) {
    for (uid_t i = 0; i < kUids; ++i) ask({kMapped + 7 * i, kMapped + 7 * i + 1});
  }
  EXPECT_NE(why_.message.find("uids 196608 to 262143"), std::string::npos) << why_.message;
  ask({kOtherUser});
  std::size_t other = 0;
  for (const QuiesceQueue::Request& request : queue_.take(now_)) {
    if (request.uids == std::vector<uid_t>{kOtherUser}) ++other;
    request.act();
  }
  EXPECT_EQ(other, 1u) << "the other user's turn came behind those of many uids";
  while (run() != 0) {
  }
  // What each has had before it waits for the others is free.
  EXPECT_LE(acted_,
            static_cast<int>(QuiesceQueue::kOfRange.burst + kUids * (QuiesceQueue::kFew + 1) + 1));
  EXPECT_GT(refused_, 0);
}

// As of a directory, whose uids are large, too.
TEST_F(QuiesceQueueTest, AUserOfARangeWhoAsksForLittleWaitsForNoneOfItsOthers) {
  constexpr uid_t kBusy = 100'001, kQuiet = 100'002;
  for (std::uint64_t i = 0; i < QuiesceQueue::kOfUser.burst + 100; ++i) ask({kBusy});
  ask({kQuiet}, 9);
  EXPECT_EQ(refused_, 0);
  std::size_t quiet = 0;
  for (const QuiesceQueue::Request& request : queue_.take(now_)) {
    if (request.uids == std::vector<uid_t>{kQuiet}) ++quiet;
    request.act();
  }
  EXPECT_EQ(quiet, 1u) << "users of a range take turns";
}

TEST_F(QuiesceQueueTest, ARequestThatWouldWaitForLongIsRefusedByWhoseShareItIs) {
  for (std::uint64_t i = 0; i < QuiesceQueue::kOfUser.burst + 500; ++i) ask({kHostileUser});
  EXPECT_EQ(refused_, 100);
  EXPECT_EQ(why_.code, ErrorCode::ResourceExhausted);
  EXPECT_EQ(why_.reason, Reason::Quota);
  EXPECT_NE(why_.message.find("uid 1000"), std::string::npos) << why_.message;
  EXPECT_NE(why_.message.find("try again in"), std::string::npos) << why_.message;
}

TEST_F(QuiesceQueueTest, AJoinIsOnTheShareOfAllItsUsersWithTheLeavesThatFollow) {
  ask({kHostileUser, kOtherUser, kHostileUser}, 4);
  for (std::uint64_t i = 4; i < QuiesceQueue::kOfUser.burst; ++i) ask({kOtherUser});
  while (run() != 0) {
  }
  EXPECT_TRUE(queue_.empty());
  ask({kOtherUser});
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(queue_.next_ns(now_), now_ + QuiesceQueue::kOfUser.interval_ns);
}

// A kernel of somebody's fills a GPU: requests were refused at once, and clients went in circles.
class HeldUpTest : public QuiesceQueueTest {
 protected:
  void ask(uid_t uid, std::uint64_t deadline_ns) {
    queue_.add({.uids = {uid},
                .act = [this]() -> QuiesceQueue::Try {
                  ++tries_;
                  if (is_free_) {
                    ++acted_;
                    return {};
                  }
                  return {.state = QuiesceQueue::Try::State::HeldUp,
                          .why = error(ErrorCode::Unavailable, Reason::None, "GPU-7 is full")};
                },
                .refuse =
                    [this](const Error& why) {
                      ++refused_;
                      why_ = why;
                    },
                .deadline_ns = deadline_ns},
               now_);
  }
  // As the worker does it, for so long; a turn each millisecond.
  void work(std::uint64_t ms) {
    for (const std::uint64_t until = now_ + ms * kMs; now_ < until; now_ += kMs) {
      for (QuiesceQueue::Request& request : queue_.take(now_)) {
        QuiesceQueue::Try tried = request.act();
        if (tried.state != QuiesceQueue::Try::State::Answered)
          queue_.put_back(std::move(request), std::move(tried), now_);
      }
    }
  }

  bool is_free_ = false;
  int tries_ = 0;
};

TEST_F(HeldUpTest, ARequestThatFindsTheGpusHeldUpIsTriedAgainUntilItIsDone) {
  ask(kOtherUser, now_ + 60'000 * kMs);
  work(5'000);
  EXPECT_EQ(refused_, 0);
  EXPECT_GT(tries_, 10);
  EXPECT_LE(tries_, 5'000 / 20 + 1) << "each try holds up all tenants";
  is_free_ = true;
  work(30);
  EXPECT_EQ(acted_, 1);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.next_ns(now_), ~std::uint64_t{0});
}

TEST_F(HeldUpTest, AtItsOwnDeadlineItHearsWhichGpuHeldItUp) {
  const std::uint64_t since = now_;
  ask(kOtherUser, now_ + 300 * kMs);
  ask(kHostileUser, 0);  // as long as is usual
  work(299);
  EXPECT_EQ(refused_, 0);
  EXPECT_LE(queue_.next_ns(now_), since + 300 * kMs) << "the worker wakes for it";
  work(3);
  EXPECT_EQ(refused_, 1);
  EXPECT_EQ(why_.code, ErrorCode::Unavailable);
  EXPECT_NE(why_.message.find("GPU-7 is full"), std::string::npos) << why_.message;
  work(QuiesceQueue::kLongestHeldNs / kMs);
  EXPECT_EQ(refused_, 2);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(HeldUpTest, WhoIsHeldUpKeepsItsPlaceAndNobodyElseWaitsForIt) {
  std::string order;
  const auto say = [&](uid_t uid, char name, bool held_up) {
    queue_.add({.uids = {uid},
                .act = [&order, name, held_up, times = 0]() mutable -> QuiesceQueue::Try {
                  if (held_up && times++ < 3)
                    return {.state = QuiesceQueue::Try::State::HeldUp,
                            .why = error(ErrorCode::Unavailable, Reason::None, "full")};
                  order += name;
                  return {};
                },
                .refuse = {}},
               now_);
  };
  say(kHostileUser, 'a', true);
  work(1);
  say(kHostileUser, 'b', false);
  say(kOtherUser, 'c', false);
  work(200);
  EXPECT_EQ(order, "cab");
}

TEST_F(HeldUpTest, SeveralThatAreHeldUpTogetherKeepTheirOrder) {
  std::string order;
  bool is_full = true;
  for (const char name : {'a', 'b', 'c', 'd'})
    queue_.add({.uids = {kOtherUser},
                .act = [&order, &is_full, name]() -> QuiesceQueue::Try {
                  if (is_full)
                    return {.state = QuiesceQueue::Try::State::HeldUp,
                            .why = error(ErrorCode::Unavailable, Reason::None, "full")};
                  order += name;
                  return {};
                },
                .refuse = {}},
               now_);
  work(100);
  is_full = false;
  work(500);
  EXPECT_EQ(order, "abcd");
}

TEST_F(HeldUpTest, WhatGoesOnInManyTurnsIsTakenUpAtOnce) {
  int parts = 0;
  queue_.add({.uids = {kOtherUser},
              .act = [&parts]() -> QuiesceQueue::Try {
                if (++parts == 10) return {};
                return {.state = QuiesceQueue::Try::State::GoesOn};
              },
              .refuse = {}},
             now_);
  work(15);
  EXPECT_EQ(parts, 10);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(HeldUpTest, WhatGoesOnAfterAPauseLeavesTheGpusToOthersMeanwhile) {
  int parts = 0;
  queue_.add({.uids = {kOtherUser},
              .act = [&parts]() -> QuiesceQueue::Try {
                if (++parts == 10) return {};
                return {.state = QuiesceQueue::Try::State::GoesOn, .pause_ns = 5 * kMs};
              },
              .refuse = {}},
             now_);
  work(15);
  EXPECT_GE(parts, 2);
  EXPECT_LE(parts, 4);
  work(60);
  EXPECT_EQ(parts, 10);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(HeldUpTest, OneUserHasSoManyHeldUpAndNoMore) {
  for (int second = 0; second < 9; ++second) {  // none is held for longer
    for (int i = 0; i < 300; ++i) ask(kHostileUser, now_ + 1'000'000 * kMs);
    work(1000);
  }
  EXPECT_GT(refused_, 0);
  EXPECT_EQ(why_.code, ErrorCode::ResourceExhausted);
  is_free_ = true;
  work(20'000);
  EXPECT_LE(acted_, static_cast<int>(QuiesceQueue::kMostOfUser));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(QuiesceQueueTest, WhatStillWaitsIsRefusedAtTheEnd) {
  for (std::uint64_t i = 0; i < QuiesceQueue::kOfUser.burst + 10; ++i) ask({kHostileUser});
  queue_.refuse_all(error(ErrorCode::Unavailable, Reason::ShuttingDown, "it stops"));
  EXPECT_EQ(refused_, static_cast<int>(QuiesceQueue::kOfUser.burst) + 10);
  EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace arcomm
