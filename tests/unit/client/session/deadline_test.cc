#include "client/src/session/deadline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace arcomm::client {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Deadline, OfForeverIsFarAwayAndNotInThePast) {
  for (const std::uint64_t asked :
       {UINT64_MAX, std::uint64_t{INT64_MAX}, std::uint64_t{INT64_MAX} + 1,
        std::uint64_t{10'000'000'000'000}}) {
    const milliseconds span = Deadline::span_of(asked);
    EXPECT_EQ(span, Deadline::kLongest) << asked;
    EXPECT_GT(Deadline::after(span).left(), hours(24 * 364)) << asked;
  }
}

TEST(Deadline, KeepsASpanThatSomeoneMaySeeTheEndOf) {
  EXPECT_EQ(Deadline::span_of(0), milliseconds(0));
  EXPECT_EQ(Deadline::span_of(30'000), milliseconds(30'000));
  EXPECT_EQ(Deadline::span_of(2'000'000'000), milliseconds(2'000'000'000));
}

TEST(Deadline, SaturatesSums) {
  const Deadline now(Deadline::Clock::now());
  EXPECT_GT(now.plus(milliseconds(10'000'000'000'000)).when(), now.when());
  EXPECT_GT(now.plus(milliseconds::max()).when(), now.when());
  const auto last = Deadline::Clock::time_point::max();
  EXPECT_EQ(Deadline(last - milliseconds(10)).plus(milliseconds(60)).when(), last);
  EXPECT_EQ(Deadline(last).plus(milliseconds(60)).when(), last);
  EXPECT_FALSE(Deadline(last).passed());
}

TEST(Deadline, IsNeverBeforeTheTimeThatItCountsFrom) {
  const Deadline now(Deadline::Clock::now());
  EXPECT_EQ(now.plus(milliseconds(-5)).when(), now.when());
  EXPECT_EQ(now.plus(milliseconds(5)).when(), now.when() + milliseconds(5));
}

TEST(DeadlineOnDemand, CountsFromTheFirstQuestionAndStaysTheSame) {
  DeadlineOnDemand deadline(milliseconds(1000));
  const auto before = Deadline::Clock::now();
  const auto when = deadline.get().when();
  EXPECT_GE(when, before + milliseconds(1000));
  EXPECT_LE(when, Deadline::Clock::now() + milliseconds(1000));
  EXPECT_EQ(deadline.get().when(), when);
}

}  // namespace
}  // namespace arcomm::client
