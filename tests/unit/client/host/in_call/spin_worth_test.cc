// When a wait for the other ranks spins first, and when it does without.
#include "client/src/host/in_call/spin_worth.h"

#include <gtest/gtest.h>

namespace arcomm::client {
namespace {

// Of so many waits whose spins all end that way: how many did spin.
int spins_of(SpinWorth& worth, int waits, bool found) {
  int spins = 0;
  for (int i = 0; i < waits; ++i) {
    if (!worth.spins()) continue;
    ++spins;
    worth.spun(found);
  }
  return spins;
}

TEST(SpinWorthTest, SpinsAlwaysWhereTheOthersComeMeanwhile) {
  SpinWorth worth;
  EXPECT_EQ(spins_of(worth, 1'000, true), 1'000);
}

TEST(SpinWorthTest, BearsAFewInVainAmongThoseThatAreNot) {
  SpinWorth worth;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(spins_of(worth, SpinWorth::kBorne, false), static_cast<int>(SpinWorth::kBorne));
    ASSERT_EQ(spins_of(worth, 1, true), 1) << "after " << i;
  }
}

TEST(SpinWorthTest, SpinsInVainGrowRareUpToABound) {
  SpinWorth worth;
  spins_of(worth, 1'000, false);
  const int waits = 100 * (SpinWorth::kMostLeftOut + 1);
  EXPECT_EQ(spins_of(worth, waits, false), 100);
}

TEST(SpinWorthTest, OneThatIsNotInVainBringsThemAllBack) {
  SpinWorth worth;
  spins_of(worth, 1'000, false);
  ASSERT_GT(spins_of(worth, SpinWorth::kMostLeftOut + 1, true), 0);
  EXPECT_EQ(spins_of(worth, 100, true), 100);
  EXPECT_EQ(spins_of(worth, SpinWorth::kBorne + 2, false), static_cast<int>(SpinWorth::kBorne) + 1)
      << "what was left out before counts no more";
}

}  // namespace
}  // namespace arcomm::client
