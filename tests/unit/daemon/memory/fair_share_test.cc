#include "daemon/memory/fair_share.h"

#include <gtest/gtest.h>

namespace arcomm::test {
namespace {

using Share = FairShare::Answer;

std::uint64_t take_all(FairShare& shares, uid_t uid) {
  std::uint64_t taken = 0;
  for (; shares.ask(uid) == Share::Yes; ++taken) shares.take(uid);
  return taken;
}

TEST(FairShare, AUidHasNoMoreThanItsOwnLimit) {
  FairShare shares({.node = 1000, .per_uid = 10});
  EXPECT_EQ(take_all(shares, 1000), 10u);
  EXPECT_EQ(shares.ask(1000), Share::UidHasMost);
  EXPECT_EQ(shares.ask(1001), Share::Yes);
  shares.give_back(1000);
  EXPECT_EQ(shares.ask(1000), Share::Yes);
}

TEST(FairShare, OneAloneGetsHalfAndEachFurtherOneHalfOfTheRest) {
  FairShare shares({.node = 64, .per_uid = 1000});
  EXPECT_EQ(take_all(shares, 1), 32u);
  EXPECT_EQ(shares.ask(1), Share::NodeIsShort);
  EXPECT_EQ(take_all(shares, 2), 16u);
  EXPECT_EQ(take_all(shares, 3), 8u);
}

// A user namespace has 65,536 uids, usually from 100,000 on.
TEST(FairShare, ThousandsOfUidsOfOneRangeLeaveRoomForSomebodyElse) {
  FairShare shares({.node = 1024, .per_uid = 100});
  std::uint64_t taken = 0;
  for (uid_t uid = 100'000; uid < 165'536; ++uid) taken += take_all(shares, uid);
  EXPECT_LE(taken, 1024u * 3 / 4) << "one range is two tenants at most";
  EXPECT_EQ(take_all(shares, 1000), 100u);
  EXPECT_EQ(take_all(shares, 1001), 78u);
}

TEST(FairShare, ReturnsToNothing) {
  FairShare shares({.node = 64, .per_uid = 4});
  for (uid_t uid = 100'000; uid < 100'010; ++uid) {
    shares.take(uid);
    shares.give_back(uid);
    shares.give_back(uid);  // once too often
  }
  EXPECT_EQ(shares.total(), 0u);
  EXPECT_EQ(take_all(shares, 100'000), 4u);
}

}  // namespace
}  // namespace arcomm::test
