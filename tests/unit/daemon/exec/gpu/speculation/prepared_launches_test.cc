#include "daemon/exec/gpu/speculation/prepared_launches.h"

#include <gtest/gtest.h>

namespace arcomm {
namespace {

class NothingPrepared final : public PreparedLaunch {
 public:
  Status launch(std::uint32_t) override { return {}; }
};

PlanTuple plans_of(std::uint32_t index) {
  return {.by_rank = {PlanId{.index = index, .generation = 1},
                      PlanId{.index = index, .generation = 2}}};
}

PreparedParts two_parts() {
  PreparedParts made;
  for (int rank = 0; rank < 2; ++rank) made.push_back(std::make_unique<NothingPrepared>());
  return made;
}

constexpr auto kAsked = CudaAlgorithm::Stream, kAskedLater = CudaAlgorithm::Flash;

void ask_in_vain(PreparedLaunches& launches, const PlanTuple& plans) {
  for (std::uint32_t time = 0; time <= PreparedLaunches::kTimesBefore; ++time)
    EXPECT_EQ(launches.find(plans, kAsked), nullptr);
}

TEST(PreparedLaunches, WantsOnlyWhatIsAskedForAgainAndAgain) {
  PreparedLaunches launches;
  EXPECT_FALSE(launches.wants(plans_of(1)));
  for (std::uint32_t time = 0; time < PreparedLaunches::kTimesBefore; ++time) {
    launches.find(plans_of(1), kAsked);
    EXPECT_FALSE(launches.wants(plans_of(1)));
  }
  launches.find(plans_of(1), kAsked);
  EXPECT_TRUE(launches.wants(plans_of(1)));
  EXPECT_FALSE(launches.wants(plans_of(2)));
}

TEST(PreparedLaunches, FindsWhatWasPutThere) {
  PreparedLaunches launches;
  ask_in_vain(launches, plans_of(1));
  ASSERT_NE(launches.put(plans_of(1), two_parts()), nullptr);
  EXPECT_FALSE(launches.wants(plans_of(1)));
  PreparedParts* found = launches.find(plans_of(1), kAsked);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->size(), 2u);
  PlanTuple newer = plans_of(1);
  ++newer[0].generation;  // another plan in the same place
  EXPECT_EQ(launches.find(newer, kAsked), nullptr);
}

TEST(PreparedLaunches, ForAnotherAlgorithmItIsSetAsideAndMadeAnew) {
  PreparedLaunches launches;
  ask_in_vain(launches, plans_of(1));
  launches.put(plans_of(1), two_parts());
  EXPECT_EQ(launches.find(plans_of(1), kAskedLater), nullptr);
  EXPECT_FALSE(launches.wants(plans_of(1)));
  EXPECT_EQ(launches.dropped().size(), 1u);
  EXPECT_TRUE(launches.dropped().empty());
}

TEST(PreparedLaunches, WhatFailedIsNotTriedAgain) {
  PreparedLaunches launches;
  ask_in_vain(launches, plans_of(1));
  EXPECT_EQ(launches.put(plans_of(1), {}), nullptr);
  ask_in_vain(launches, plans_of(1));
  EXPECT_FALSE(launches.wants(plans_of(1)));
}

TEST(PreparedLaunches, WhatWasPutOffIsWantedLater) {
  PreparedLaunches launches;
  ask_in_vain(launches, plans_of(1));
  launches.put_off(plans_of(1));
  EXPECT_FALSE(launches.wants(plans_of(1)));
  ask_in_vain(launches, plans_of(1));
  EXPECT_TRUE(launches.wants(plans_of(1)));
}

TEST(PreparedLaunches, TheOldestGoesFirstAndIsSetAside) {
  PreparedLaunches launches;
  ask_in_vain(launches, plans_of(0));
  launches.put(plans_of(0), two_parts());
  for (std::uint32_t i = 1; i < PreparedLaunches::kMost; ++i) launches.find(plans_of(i), kAsked);
  EXPECT_NE(launches.find(plans_of(0), kAsked), nullptr);
  launches.find(plans_of(PreparedLaunches::kMost), kAsked);
  EXPECT_EQ(launches.find(plans_of(0), kAsked), nullptr);
  EXPECT_EQ(launches.dropped().size(), 1u);
}

TEST(PreparedLaunches, DroppingAllSetsAllAside) {
  PreparedLaunches launches;
  for (std::uint32_t i = 0; i < 3; ++i) {
    ask_in_vain(launches, plans_of(i));
    launches.put(plans_of(i), two_parts());
  }
  launches.drop_all();
  EXPECT_EQ(launches.dropped().size(), 3u);
  EXPECT_EQ(launches.find(plans_of(0), kAsked), nullptr);
}

}  // namespace
}  // namespace arcomm
