// Numbers of operations and gates that come round, on every path that the worker has a part in.
#include "tests/unit/daemon/exec/gpu/speculation/gpu_speculation_fixture.h"

namespace arcomm::test {
namespace {

class GpuNumbersComeRound : public GpuSpeculation {
 protected:
  static constexpr std::uint32_t kBefore = 0xffff'ffe6;  // even: as many gates of either parity

  void SetUp() override {
    node_.operations_before = FakeScratch::before = kBefore;
    GpuSpeculation::SetUp();
  }
  void TearDown() override {
    GpuSpeculation::TearDown();
    FakeScratch::before = 0;
  }
  void run_resident(const std::vector<GpuRank*>& ranks, const std::vector<PlanId>& made, int turn) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ranks[i]->send()[0] = ranks[i]->send()[kSmall - 1] = static_cast<float>(turn);
      ranks[i]->recv()[0] = -1;
      ranks[i]->start(made[i], LaunchPath::Resident);
    }
    for (const GpuRank* rank : ranks) {
      ASSERT_TRUE(rank->wait(LaunchPath::Resident)) << "operation " << rank->posted[0];
      EXPECT_EQ(rank->recv()[0], static_cast<float>(turn) * static_cast<float>(ranks.size()));
    }
  }
};

TEST_F(GpuNumbersComeRound, ResidentOperationsGoOn) {
  const auto ranks = group(3);
  const auto made = plans(ranks, kSmall);
  for (int turn = 1; turn <= 60; ++turn) {
    ASSERT_NO_FATAL_FAILURE(run_resident(ranks, made, turn));
    if (turn % 7 == 0) rank(0, 4096);  // the grids leave and come back
  }
  EXPECT_EQ(ranks[0]->posted[0], kBefore + 60);
  EXPECT_TRUE(eventually([&] { return inspect().operations_done == 180; }));
}

TEST_F(GpuNumbersComeRound, ARankThatIsBehindIsNamedByWhatItLacks) {
  const auto ranks = group(2);
  const auto made = plans(ranks, kSmall);
  for (std::uint32_t turn = 1; turn < 0u - kBefore; ++turn)
    ASSERT_NO_FATAL_FAILURE(run_resident(ranks, made, static_cast<int>(turn)));
  ranks[1]->start(made[1], LaunchPath::Resident);  // number 0
  ASSERT_TRUE(eventually([&] { return !inspect().communicators.at(0).diagnosis.empty(); }));
  EXPECT_EQ(inspect().communicators.at(0).diagnosis.rfind("rank 0 has called ", 0), 0u)
      << inspect().communicators.at(0).diagnosis;
}

TEST_F(GpuNumbersComeRound, LaunchedOperationsGoOn) {
  serve(10'000, false);
  const auto ranks = group(2);
  const auto made = plans(ranks);
  for (int turn = 0; turn < 60; ++turn) ASSERT_NO_FATAL_FAILURE(run(ranks, made));
  EXPECT_EQ(node_.sums, 60);
  EXPECT_EQ(hits(), 0u);
}

// Number 0 is launched when it is called: as a gate's number it means none.
TEST_F(GpuNumbersComeRound, SpeculativeOperationsAndTheirGatesGoOn) {
  const auto ranks = group(2);
  const auto made = plans(ranks);
  for (int turn = 0; turn < 100; ++turn) ASSERT_NO_FATAL_FAILURE(run(ranks, made));
  EXPECT_EQ(node_.sums, 100);
  const std::uint64_t before = hits();
  EXPECT_GT(before, 30u);
  for (int turn = 0; turn < 20; ++turn) ASSERT_NO_FATAL_FAILURE(run(ranks, made));
  EXPECT_GT(hits(), before);
}

TEST_F(GpuNumbersComeRound, WhatIsCancelledAroundItLeavesNothingBehind) {
  const auto ranks = group(2);
  const auto one = plans(ranks), other = plans(ranks, kOther);
  std::uint32_t random = 3;
  for (int turn = 0; turn < 120; ++turn) {
    random = random * 1'664'525 + 1'013'904'223;
    const bool first = (random >> 28) < 11;
    ASSERT_NO_FATAL_FAILURE(run(ranks, first ? one : other, first ? kLarge : kOther));
  }
  EXPECT_EQ(node_.sums, 120);
  EXPECT_GT(misses(), 0u);
}

}  // namespace
}  // namespace arcomm::test
