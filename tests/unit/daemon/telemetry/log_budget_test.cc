// A flood of failures: so many lines a second, and the rest as a number.
#include "daemon/telemetry/log/log_budget.h"

#include <gtest/gtest.h>

namespace arcomm {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

int lines_of(LogBudget& budget, int asked, std::uint64_t now_ns) {
  int lines = 0;
  for (int i = 0; i < asked; ++i) lines += budget.spend(now_ns).has_value() ? 1 : 0;
  return lines;
}

TEST(LogBudget, LeavesOutAndCountsWhatIsBeyondASecondsLines) {
  LogBudget budget;
  EXPECT_EQ(lines_of(budget, 100, 5), LogBudget::kLinesPerSecond);
  EXPECT_EQ(lines_of(budget, 3, 5 + kSecondNs - 1), 0);
  EXPECT_EQ(budget.left_out(), 103u - LogBudget::kLinesPerSecond);
}

TEST(LogBudget, SaysOnceHowManyWereLeftOutWhenTheSecondTurns) {
  LogBudget budget;
  lines_of(budget, LogBudget::kLinesPerSecond + 7, 5);
  EXPECT_EQ(budget.spend(5 + kSecondNs), 7u);
  EXPECT_EQ(budget.spend(5 + kSecondNs), 0u);
  EXPECT_EQ(budget.left_out(), 0u);
  EXPECT_EQ(lines_of(budget, 100, 5 + kSecondNs), LogBudget::kLinesPerSecond - 2);
}

TEST(LogBudget, IsIdleOnceItsSecondIsOverAndAllIsSaid) {
  LogBudget budget;
  EXPECT_TRUE(budget.is_idle(0));
  EXPECT_EQ(budget.spend(5), 0u);
  EXPECT_FALSE(budget.is_idle(6));
  EXPECT_TRUE(budget.is_idle(5 + kSecondNs));
  lines_of(budget, LogBudget::kLinesPerSecond, 6);
  EXPECT_FALSE(budget.is_idle(5 + kSecondNs)) << "one was left out and is not said yet";
}

}  // namespace
}  // namespace arcomm
