// When a wait gives up spinning, and when it tries again. The clock is a number.
#include "transport/device/lost_time.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace arcomm {
namespace {

constexpr std::uint64_t kSlice = 4'000'000;  // what the scheduler gives another process

class LostTimeTest : public ::testing::Test {
 protected:
  // Awake for so long in pauses of a microsecond, none of which is late.
  void keep(std::uint64_t span) {
    for (const std::uint64_t end = now_ + span; now_ < end; now_ += 1'000)
      lost_time_.paused(now_, now_ + 1'000);
  }
  void lose(std::uint64_t span = kSlice) {
    lost_time_.paused(now_, now_ + span);
    now_ += span;
  }
  // Goes on to the next try; how long it was slept until then.
  std::uint64_t sleep() {
    const std::uint64_t from = now_;
    while (lost_time_.sleeps(now_)) now_ += 1'000;
    return now_ - from;
  }

  LostTime lost_time_;
  std::uint64_t now_ = 1'000'000'000;
};

TEST_F(LostTimeTest, AQuietCoreIsNeverSleptOn) {
  EXPECT_FALSE(lost_time_.sleeps(now_));
  for (int i = 0; i < 1'000; ++i) {
    keep(100'000);
    lose(LostTime::kLostNs - 1);  // an interrupt, a page fault
    ASSERT_FALSE(lost_time_.sleeps(now_));
  }
}

TEST_F(LostTimeTest, OneLostTimeSliceIsEnoughToSleepAtOnce) {
  keep(100'000);
  lose();
  EXPECT_TRUE(lost_time_.sleeps(now_));
}

TEST_F(LostTimeTest, SleepsEndSoThatAQuietCoreIsNoticed) {
  lose();
  EXPECT_EQ(sleep(), LostTime::kFirstSleepNs);
  EXPECT_FALSE(lost_time_.sleeps(now_));
}

TEST_F(LostTimeTest, TriesThatLoseTimeAgainGrowRareUpToABound) {
  std::uint64_t tried = 0, lost = 0;
  const std::uint64_t begin = now_;
  std::uint64_t last = 0;
  while (now_ - begin < 60'000'000'000) {
    keep(1'000'000);
    lose();  // borne
    lose();
    ++tried;
    lost += 2 * kSlice;
    const std::uint64_t slept = sleep();
    EXPECT_GE(slept, last);
    EXPECT_LE(slept, LostTime::kLongestSleepNs);
    last = slept;
  }
  EXPECT_EQ(last, LostTime::kLongestSleepNs);
  EXPECT_LT(lost, (now_ - begin) / 50) << tried << " tries";
}

TEST_F(LostTimeTest, WhatIsLostNowAndThenIsBorne) {
  for (int i = 0; i < 1'000; ++i) {
    keep(kSlice / LostTime::kLeftPart);
    lose();
    ASSERT_FALSE(lost_time_.sleeps(now_));
  }
}

TEST_F(LostTimeTest, ACoreThatIsQuietAgainIsSpunOnFromTheNextTryOn) {
  for (int i = 0; i < 20; ++i) {
    lose();
    sleep();
  }
  keep(2 * LostTime::kLongestSleepNs);
  EXPECT_FALSE(lost_time_.sleeps(now_));
  lose();  // borne
  lose();
  EXPECT_EQ(sleep(), LostTime::kFirstSleepNs) << "the while begins anew";
}

// An idle caller comes back after seconds: that nothing was lost meanwhile says nothing.
TEST_F(LostTimeTest, TimeWithoutWaitingIsNoEvidenceOfAQuietCore) {
  std::uint64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    lose();
    const std::uint64_t slept = sleep();
    EXPECT_GT(slept, last);
    last = slept;
    now_ += 10'000'000'000;
  }
}

TEST_F(LostTimeTest, ThreadsThatNoticeTheSameSliceCountOnce) {
  lose();
  lost_time_.paused(now_ - kSlice, now_);
  EXPECT_EQ(sleep(), LostTime::kFirstSleepNs);
}

TEST_F(LostTimeTest, AClockThatStandsStillOrAnOlderLookIsNoLoss) {
  lost_time_.paused(now_, now_);
  lost_time_.paused(now_, now_ - kSlice);
  EXPECT_FALSE(lost_time_.sleeps(now_));
}

}  // namespace
}  // namespace arcomm
