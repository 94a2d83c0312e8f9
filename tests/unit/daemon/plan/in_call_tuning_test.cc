// Up to which size operations on one host run within the ranks' calls: by what was measured, by the
// setting, or by the rule.
#include "daemon/plan/tuning/in_call_tuning.h"

#include <gtest/gtest.h>

#include <string>

#include "daemon/plan/tuning/tuning_table.h"

namespace arcomm {
namespace {

InCallTuning measured() {
  InCallTuning tuning;
  tuning.points = {{4, 1024, TypeClass::Plain, 9, 8},    {2, 65536, TypeClass::Plain, 11, 7},
                   {2, 32768, TypeClass::Plain, 5, 6},   {2, 1024, TypeClass::Plain, 0.5, 3.5},
                   {2, 1024, TypeClass::Half, 0.5, 3.5}, {2, 2048, TypeClass::Half, 9, 4},
                   {2, 4096, TypeClass::Half, 3, 4}};
  tuning.settle();
  return tuning;
}

TEST(InCallTuning, EndsWhereItGainsMostOverTheWorker) {
  const InCallTuning tuning = measured();
  EXPECT_EQ(tuning.most_bytes(2, TypeClass::Plain), 32768u);
  EXPECT_EQ(tuning.most_bytes(2, TypeClass::Half), 1024u) << "4 KB gains less than 2 KB loses";
  EXPECT_EQ(tuning.most_bytes(4, TypeClass::Plain), 0u) << "never";
}

TEST(InCallTuning, IsNotDecidedByASizeThatABusyMomentSpoilt) {
  InCallTuning tuning;
  tuning.points = {{2, 256, TypeClass::Half, 140, 2.9}, {2, 1024, TypeClass::Half, 0.3, 2.9},
                   {2, 4096, TypeClass::Half, 0.9, 3},  {2, 8192, TypeClass::Half, 1.9, 190},
                   {2, 16384, TypeClass::Half, 5, 4},   {2, 32768, TypeClass::Half, 10, 5}};
  EXPECT_EQ(tuning.most_bytes(2, TypeClass::Half), 8192u);
}

TEST(InCallTuning, IsNothingToCallsThatAreNoFaster) {
  InCallTuning tuning;
  tuning.points = {{2, 256, TypeClass::Plain, 3, 3}, {2, 1024, TypeClass::Plain, 4, 3}};
  EXPECT_EQ(tuning.most_bytes(2, TypeClass::Plain), 0u);
}

TEST(InCallTuning, StandsForMoreRanksByWhatEachReadsAndNotForFewer) {
  const InCallTuning tuning = measured();
  EXPECT_EQ(tuning.most_bytes(3, TypeClass::Plain), 16384u);
  EXPECT_EQ(tuning.most_bytes(8, TypeClass::Plain), 0u);
  EXPECT_EQ(tuning.most_bytes(8, TypeClass::Half), 1024u / 7)
      << "of 2 ranks, as 4 were not measured";
  EXPECT_EQ(tuning.most_bytes(1, TypeClass::Plain), std::nullopt);
  EXPECT_EQ(InCallTuning{}.most_bytes(2, TypeClass::Plain), std::nullopt);
}

TEST(InCallTuning, TakesThePlaceOfWhatWasMeasuredOfTheSameRanksAndTypes) {
  InCallTuning newer;
  newer.points = {{2, 8192, TypeClass::Plain, 9, 1}};
  const InCallTuning both = newer.over(measured());
  EXPECT_EQ(both.most_bytes(2, TypeClass::Plain), 0u);
  EXPECT_EQ(both.most_bytes(2, TypeClass::Half), 1024u);
  EXPECT_EQ(both.points.size(), 1u + 3 + 1);
  EXPECT_EQ(InCallTuning{}.over(both), both);
}

TEST(InCallBounds, AreWhatWasMeasuredWhereTheSettingLeavesItToThat) {
  const InCallTuning tuning = measured();
  EXPECT_EQ(in_call_bounds(kInCallAuto, tuning, 2), (InCallBounds{32768, 1024}));
  EXPECT_EQ(in_call_bounds(kInCallAuto, {}, 2), (InCallBounds{16384, 8192}));
  EXPECT_EQ(in_call_bounds(4096, tuning, 2), (InCallBounds{4096, 2048}));
  EXPECT_EQ(in_call_bounds(65536, tuning, 4), (InCallBounds{16384, 8192})) << "48 KiB of others";
  EXPECT_FALSE(in_call_bounds(kInCallAuto, tuning, 1).any());
  EXPECT_FALSE(in_call_bounds(kInCallAuto, {}, 9).any()) << "calls of so many do not meet";
}

TEST(InCallBounds, AreAsAskedForUnlessTheyAreSwitchedOff) {
  const InCallTuning tuning = measured();
  EXPECT_EQ(in_call_bounds(kInCallAuto, tuning, 4, 65536), (InCallBounds{65536, 65536}));
  EXPECT_EQ(in_call_bounds(4096, tuning, 2, 8192), (InCallBounds{8192, 8192}));
  EXPECT_EQ(in_call_bounds(4096, tuning, 2, ~0ull), (InCallBounds{65536, 65536}));
  EXPECT_FALSE(in_call_bounds(0, tuning, 2, 65536).any());
}

TEST(InCallTuning, IsTheSameAfterItsWayThroughAFile) {
  TuningTable table;
  table.in_call = measured();
  const Result<TuningTable> read = parse_tuning(print_tuning(table), "a file");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->in_call, table.in_call);
}

TEST(InCallTuning, OfAFileThatIsWrongIsRefusedWithItsLine) {
  const auto refusal = [](const std::string& point) {
    const Result<TuningTable> read =
        parse_tuning("format = 1\nmachine = \"m\"\n[[in_call]]\n" + point, "t.toml");
    return read ? std::string("taken") : read.error().message;
  };
  const std::string rest = "\nmicroseconds = 1.0\nby_worker_microseconds = 2.0\n";
  EXPECT_EQ(refusal("ranks = 2\nbytes = 1024" + rest), "taken");
  for (const auto& [point, word] : {std::pair("ranks = 9\nbytes = 1", "ranks must be 1 to 8"),
                                    std::pair("ranks = 2\nbytes = 65537", "at most 65536"),
                                    std::pair("ranks = 2\nbytes = 1\nclass = \"x\"", "class 'x'"),
                                    std::pair("ranks = 2\nbytes = 1\ntile = 1", "unknown key")}) {
    const std::string why = refusal(point + rest);
    EXPECT_NE(why.find(word), std::string::npos) << why;
    EXPECT_NE(why.find("t.toml:"), std::string::npos) << why;
  }
  EXPECT_NE(refusal("ranks = 2\nbytes = 1\nmicroseconds = 1.0\n").find("by_worker_microseconds"),
            std::string::npos);
}

}  // namespace
}  // namespace arcomm
