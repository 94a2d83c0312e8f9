// Which communicators may launch beside each other, and that none of them waits for ever.
#include "daemon/exec/gpu/launch_room.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/plan/in_stream_share.h"
#include "tests/unit/daemon/exec/gpu/launch_room_model.h"

namespace arcomm {
namespace {

using launch_room_model::add_circle, launch_room_model::Node;

class LaunchRoomOn : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  // Nothing is lent, or all that may be.
  static std::vector<Node::Shape> shapes(std::uint32_t sms) {
    const std::uint32_t all = sms > kSparedSms ? sms - kSparedSms : 0;
    return {{.sms = {sms, sms, sms}, .in_stream = {0, 0, 0}},
            {.sms = {sms, sms, sms}, .in_stream = {all, all, all}},
            {.sms = {sms, 132, 60}, .in_stream = {all / 2, 120, 0}}};
  }
};

TEST_P(LaunchRoomOn, NoNumberOfCommunicatorsHoldsEachOther) {
  for (const Node::Shape& shape : shapes(GetParam())) {
    for (const bool share_queues : {false, true}) {
      for (unsigned seed = 0; seed < 20; ++seed) {
        Node node(shape, seed);
        add_circle(node, share_queues);
        ASSERT_TRUE(node.serve(12)) << "seed " << seed << ", shared queues " << share_queues;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sms, LaunchRoomOn, ::testing::Values(4U, 24U, 60U, 112U, 132U));

TEST(LaunchRoom, WhatWaitsForAnotherNodeEntersOnlyWhereNobodyWaitsForIt) {
  LaunchRoom room;
  room.add_gpu(132);
  LaunchPlace few{.parts = {{.gpu = 0, .queue = 1}}}, many{.parts = {{.gpu = 0, .queue = 2}}};
  const std::uint32_t narrow = room.narrow_room(0);
  EXPECT_FALSE(room.enter_narrow(many, narrow + 1));
  EXPECT_FALSE(many.has_place());
  EXPECT_TRUE(room.enter_narrow(few, 16));
  EXPECT_FALSE(room.enter_narrow(many, narrow)) << "beside the other it is wide";
  EXPECT_TRUE(room.enter(many, narrow)) << "and waits for nobody who is narrow";
  room.leave(many);
  room.leave(few);
}

// The model shows what was the matter: without places some of them wait for ever.
TEST(LaunchRoom, WithoutPlacesTheyHoldEachOther) {
  for (const std::uint32_t sms : {24U, 60U, 112U, 132U}) {
    int held = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
      const std::uint32_t all = sms - kSparedSms;
      Node node({.sms = {sms, sms, sms}, .in_stream = {all, all, all}, .with_room = false}, seed);
      add_circle(node, false);
      held += node.serve(12) ? 0 : 1;
    }
    EXPECT_GT(held, 0) << sms;
  }
}

LaunchPlace place_of(std::vector<LaunchPlace::Part> parts) {
  return {.parts = std::move(parts)};
}

class LaunchRoomTest : public ::testing::Test {
 protected:
  LaunchRoomTest() {
    for (int gpu = 0; gpu < 3; ++gpu) room_.add_gpu(132);
  }
  LaunchRoom room_;
  LaunchPlace one_ = place_of({{0, 1}, {1, 1}}), other_ = place_of({{0, 2}, {1, 2}});
  LaunchPlace third_ = place_of({{0, 3}, {1, 3}}), apart_ = place_of({{2, 1}});
};

TEST_F(LaunchRoomTest, TwoLargeOnesGoBesideEachOtherWhereOneOfThemAlwaysFits) {
  EXPECT_TRUE(room_.enter(one_, 112));
  EXPECT_FALSE(one_.is_wide);
  EXPECT_TRUE(room_.enter(other_, 112));
  EXPECT_TRUE(other_.is_wide);
  EXPECT_FALSE(room_.enter(third_, 112));
  room_.leave(other_);
  EXPECT_TRUE(room_.enter(third_, 112));
}

TEST_F(LaunchRoomTest, WhatIsInStreamCountsAsIfItStoodStill) {
  room_.lend(one_, 96);
  EXPECT_TRUE(room_.has_lent(one_));
  EXPECT_EQ(room_.narrow_room(0), 132u - 10 - 96 - 1);
  EXPECT_EQ(room_.narrow_room(2), 132u - 10 - 1);
  EXPECT_TRUE(room_.enter(one_, 112));
  EXPECT_FALSE(room_.enter(other_, 26)) << "25 are left";
  EXPECT_TRUE(room_.enter(third_, 25)) << "what is small passes by";
  EXPECT_TRUE(room_.enter(apart_, 112));
  room_.leave(one_);
  EXPECT_TRUE(room_.enter(other_, 26));
  room_.take_back(one_, 96);
  EXPECT_EQ(room_.narrow_room(0), 121u);
}

TEST_F(LaunchRoomTest, WhoWaitsIsNotPassedByThoseItWouldWaitFor) {
  room_.lend(one_, 120);
  EXPECT_TRUE(room_.has_lent(one_));
  EXPECT_TRUE(room_.enter(one_, 50));
  EXPECT_FALSE(room_.enter(other_, 60));
  EXPECT_TRUE(LaunchRoom::is_in_the_way(one_, other_));
  EXPECT_FALSE(room_.enter(third_, 70));
  EXPECT_FALSE(room_.enter_ahead(one_, 50)) << "it would never end";
  room_.leave(one_);
  EXPECT_FALSE(room_.enter(third_, 70)) << "the other came first";
  EXPECT_TRUE(room_.enter(other_, 60));
  EXPECT_FALSE(LaunchRoom::is_in_the_way(one_, other_));
  room_.give_up_turn(third_);
  room_.leave(other_);
  EXPECT_TRUE(room_.enter_ahead(one_, 50));
}

TEST_F(LaunchRoomTest, ALargeOneDoesNotStandBehindASmallOneInOneQueue) {
  LaunchPlace small = place_of({{0, 0}, {1, 0}}), large = place_of({{0, 0}, {1, 4}});
  room_.lend(one_, 96);
  EXPECT_TRUE(room_.has_lent(one_));
  EXPECT_TRUE(room_.enter(small, 8));
  EXPECT_FALSE(room_.enter(large, 112));
  room_.leave(small);
  EXPECT_FALSE(room_.enter(small, 8)) << "it would be in the way again";
  EXPECT_TRUE(room_.enter(large, 112));
}

TEST_F(LaunchRoomTest, WhatWaitsForOtherNodesIsAloneInItsQueue) {
  LaunchPlace spanning = place_of({{0, 0}}), other = place_of({{0, 0}}), own = place_of({{0, 3}});
  spanning.spans_nodes = true;
  EXPECT_TRUE(room_.enter(spanning, 2));
  EXPECT_TRUE(room_.enter(own, 2));
  EXPECT_FALSE(room_.enter(other, 2)) << "it would stand behind it, and on its other GPUs not";
  EXPECT_TRUE(room_.is_wanted(spanning));
  EXPECT_FALSE(room_.is_wanted(own));
  room_.leave(spanning);
  EXPECT_TRUE(room_.enter(other, 2));
  EXPECT_FALSE(room_.enter(spanning, 2));
}

TEST(LaunchRoom, WhoWaitsBesideAHolderSharesAGpuWithItOrWithOneThatDoes) {
  constexpr std::uint32_t kBlocks = 4;
  LaunchRoom room;
  for (int gpu = 0; gpu < 3; ++gpu) room.add_gpu(11);
  LaunchPlace holder{.parts = {{.gpu = 0, .queue = 1}}},
      runs_elsewhere{.parts = {{.gpu = 2, .queue = 1}}};
  LaunchPlace waits{.parts = {{.gpu = 0, .queue = 2}, {.gpu = 1, .queue = 2}}};
  LaunchPlace waits_behind{.parts = {{.gpu = 1, .queue = 3}}};
  LaunchPlace waits_elsewhere{.parts = {{.gpu = 2, .queue = 4}}};
  ASSERT_TRUE(room.enter(holder, kBlocks) && room.enter(runs_elsewhere, kBlocks));
  ASSERT_FALSE(room.enter(waits, kBlocks));
  ASSERT_FALSE(room.enter(waits_behind, kBlocks));
  ASSERT_FALSE(room.enter(waits_elsewhere, kBlocks));
  EXPECT_EQ(room.waiting_beside(holder), (std::vector<const LaunchPlace*>{&waits, &waits_behind}));
  EXPECT_EQ(room.waiting_beside(runs_elsewhere), std::vector<const LaunchPlace*>{&waits_elsewhere});
}

TEST_F(LaunchRoomTest, WhoWantsSmsOfNarrowOnesInVainIsHeardOnce) {
  EXPECT_TRUE(room_.enter(one_, 100));
  EXPECT_FALSE(room_.take_wish());
  room_.lend(other_, 96);
  EXPECT_FALSE(room_.has_lent(other_));
  EXPECT_TRUE(room_.take_wish());
  EXPECT_FALSE(room_.take_wish());
  room_.leave(one_);
  EXPECT_TRUE(room_.has_lent(other_));
  EXPECT_FALSE(room_.take_wish());
}

TEST_F(LaunchRoomTest, WhatRunsHasItsRoomUntilItEndsWhoeverWantsSmsForInStreamOperations) {
  EXPECT_TRUE(room_.enter(one_, 100));
  room_.lend(other_, 24);
  EXPECT_FALSE(room_.has_lent(other_)) << "it may be about to begin";
  EXPECT_TRUE(room_.enter(third_, 20));
  EXPECT_TRUE(third_.is_wide) << "those who come have less room, so that the lender's turn comes";
  room_.leave(third_);
  room_.leave(one_);
  EXPECT_TRUE(room_.has_lent(other_));
  EXPECT_TRUE(room_.enter(one_, 100));
  EXPECT_TRUE(one_.is_wide) << "97 are left";
  room_.lend(third_, 96);
  EXPECT_TRUE(room_.has_lent(third_)) << "what is wide has no room of its own";
}

}  // namespace
}  // namespace arcomm
