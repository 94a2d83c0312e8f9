#include "daemon/telemetry/log/line_shares.h"

#include <gtest/gtest.h>

#include <map>

namespace arcomm {
namespace {

constexpr std::uint64_t kOneSecond = 1'000'000'000;
constexpr std::uint64_t kStart = 100 * kOneSecond;

std::uint64_t lines_of(LineShares& shares, uid_t uid, int asked, std::uint64_t now_ns) {
  std::uint64_t lines = 0;
  for (int i = 0; i < asked; ++i) lines += shares.spend(uid, now_ns) ? 1 : 0;
  return lines;
}

std::map<uid_t, std::uint64_t> told(LineShares& shares, std::uint64_t now_ns) {
  std::map<uid_t, std::uint64_t> all;
  for (const LineShares::LeftOut& one : shares.take_left_out(now_ns)) all[one.uid] = one.lines;
  return all;
}

TEST(LineShares, AFloodHasItsOwnLinesAndNobodyElses) {
  LineShares shares({.of_uid = 16, .of_all = 512});
  EXPECT_EQ(lines_of(shares, 1000, 100000, kStart), 16u);
  EXPECT_EQ(lines_of(shares, 1001, 16, kStart), 16u);
  EXPECT_EQ(shares.left_out(), 100000u - 16);
}

TEST(LineShares, ManyWhoFloodLeaveALineToWhoComesAfterThem) {
  LineShares shares({.of_uid = 16, .of_all = 512});
  std::uint64_t lines = 0;
  for (uid_t uid = 2000; uid < 2100; ++uid) lines += lines_of(shares, uid, 1000, kStart);
  EXPECT_LT(lines, 512u);
  EXPECT_TRUE(shares.spend(1000, kStart)) << "another's line was lost in the flood of a hundred";
}

TEST(LineShares, AreNoMoreThanAllMayHaveTogether) {
  LineShares shares({.of_uid = 16, .of_all = 512});
  std::uint64_t lines = 0;
  for (uid_t uid = 2000; uid < 60000; ++uid) lines += lines_of(shares, uid, 1, kStart);
  EXPECT_EQ(lines, 512u);
}

TEST(LineShares, ARangeOfUidsIsOneUser) {
  LineShares shares({.of_uid = 16, .of_all = 512});
  std::uint64_t lines = 0;
  for (uid_t uid = 165536; uid < 165536 + 65536; ++uid) lines += lines_of(shares, uid, 1, kStart);
  EXPECT_EQ(lines, 32u) << "it touches two ranges";
  EXPECT_TRUE(shares.spend(1000, kStart));
  EXPECT_EQ(told(shares, kStart + kOneSecond).size(), 2u);
}

TEST(LineShares, TellOnceWhoseLinesWereLeftOutWhenTheSecondIsOver) {
  LineShares shares({.of_uid = 2, .of_all = 512});
  lines_of(shares, 1000, 7, kStart);
  lines_of(shares, 1001, 2, kStart);
  EXPECT_TRUE(told(shares, kStart + 1).empty()) << "before its second is over";
  EXPECT_EQ(told(shares, kStart + kOneSecond), (std::map<uid_t, std::uint64_t>{{1000, 5}}));
  EXPECT_TRUE(told(shares, kStart + 2 * kOneSecond).empty()) << "twice";
  EXPECT_EQ(lines_of(shares, 1000, 7, kStart + 3 * kOneSecond), 2u) << "a new second";
}

TEST(LineShares, RememberSoManyUidsAndCountTheRestTogether) {
  LineShares shares({.of_uid = 1, .of_all = 1 << 20});
  for (uid_t uid = 0; uid < 3 * LineShares::kMostUids; ++uid) lines_of(shares, uid, 2, kStart);
  const auto left_out = told(shares, kStart + kOneSecond);
  EXPECT_EQ(left_out.size(), LineShares::kMostTold + 1);
  std::uint64_t sum = 0;
  for (const auto& [uid, lines] : left_out) sum += lines;
  EXPECT_EQ(sum, shares.left_out());
  EXPECT_EQ(sum, LineShares::kMostUids + 2 * (2 * LineShares::kMostUids));
}

}  // namespace
}  // namespace arcomm
