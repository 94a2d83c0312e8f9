// Who waits for whom among thousands of communicators: what is looked at is what waits.
#include "daemon/exec/gpu/group/in_stream_waits.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "daemon/exec/gpu/group/gpu_groups.h"

namespace arcomm {
namespace {

class InStreamWaitsTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMs = 1'000'000;

  // Of two ranks, of these sessions.
  GpuGroup& group(std::uint32_t first, std::uint32_t second) {
    GpuGroup& made = *made_.emplace_back(std::make_unique<GpuGroup>(*groups_));
    made.members.resize(2);
    made.members[0].session = {first, 1};
    made.members[1].session = {second, 1};
    for (Rank rank = 0; rank < 2; ++rank) made.member(rank).rank = rank;
    return made;
  }
  void begin(GpuGroup& group, Rank rank) {
    GpuMember& member = group.member(rank);
    waits().note(group, member, member.in_stream_begun + 1, now_);
  }
  InStreamWaits& waits() { return groups_->in_stream_waits; }

  std::unique_ptr<GpuGroups> groups_ = GpuGroups::create({}, {}).value();
  std::vector<std::unique_ptr<GpuGroup>> made_;
  std::uint64_t now_ = 1000 * kMs;
};

TEST_F(InStreamWaitsTest, TwoThatWaitForEachOtherAreFoundAmongThousandsThatAreIdle) {
  for (int i = 0; i < 5000; ++i) {
    GpuGroup& idle = group(1, 2);  // the same two, too
    for (const Rank rank : {0, 1}) begin(idle, rank);
  }
  now_ += 100 * kMs;
  GpuGroup& one = group(1, 2);
  GpuGroup& other = group(1, 2);
  waits().find_crossing(one, 0, now_);  // nobody waits: nothing is looked at
  EXPECT_EQ(waits().looked_at(), 0u);
  begin(one, 0);
  begin(other, 1);
  now_ += 20 * kMs;
  EXPECT_EQ(waits().find_crossing(one, 0, now_), &other);
  const std::uint64_t first = waits().looked_at();
  EXPECT_LE(first, 5002u) << "those that once waited leave the index, each once";
  EXPECT_EQ(waits().find_crossing(one, 0, now_), &other);
  EXPECT_EQ(waits().find_crossing(other, 1, now_), &one);
  EXPECT_LE(waits().looked_at() - first, 4u) << "only what waits";
}

TEST_F(InStreamWaitsTest, OthersThatWaitAreNotLookedAt) {
  for (std::uint32_t i = 0; i < 3000; ++i) begin(group(100 + 2 * i, 101 + 2 * i), 0);
  GpuGroup& one = group(1, 2);
  begin(one, 0);
  now_ += 20 * kMs;
  EXPECT_EQ(waits().find_crossing(one, 0, now_), nullptr);
  EXPECT_LE(waits().looked_at(), 1u);
}

TEST_F(InStreamWaitsTest, ACommunicatorThatIsGoneIsInNoIndex) {
  begin(group(1, 2), 0);
  EXPECT_EQ(waits().indexed(), 2u);
  made_.clear();
  EXPECT_EQ(waits().indexed(), 0u);
}

// The stream goes on behind a deadline: where they stood until just now counts.
TEST_F(InStreamWaitsTest, WhatWaitedUntilJustNowStillCounts) {
  GpuGroup& one = group(1, 2);
  GpuGroup& other = group(1, 2);
  begin(one, 0);
  begin(other, 1);
  now_ += 20 * kMs;
  begin(one, 1);
  begin(other, 0);
  now_ += kMs;
  EXPECT_EQ(waits().find_crossing(one, 0, now_), &other);
  now_ += 100 * kMs;
  EXPECT_EQ(waits().find_crossing(one, 0, now_), nullptr);
}

}  // namespace
}  // namespace arcomm
