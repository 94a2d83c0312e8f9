#include "proto/nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace arcomm {
namespace {

TEST(NearestName, CountsASwapOfNeighboursAsOneEdit) {
  EXPECT_EQ(edit_distance("statsu", "status"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestName, FindsTheNearestAndNothingThatIsFar) {
  const std::vector<std::string> known = {"status", "sessions", "trace"};
  EXPECT_EQ(nearest_name("satus", known), "status");
  EXPECT_EQ(nearest_name("trade", known), "trace");
  EXPECT_EQ(nearest_name("bench", known), std::nullopt);
  EXPECT_EQ(nearest_name("", known), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(1000, 'x'), known), std::nullopt);
}

}  // namespace
}  // namespace arcomm
