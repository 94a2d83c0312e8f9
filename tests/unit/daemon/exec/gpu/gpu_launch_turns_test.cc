// Communicators of many blocks take turns on the GPUs that they share.
#include "tests/unit/daemon/exec/gpu/speculation/gpu_speculation_fixture.h"

namespace arcomm::test {
namespace {

// Of 132 SMs in-stream operations may have 96: two communicators of many blocks could hold each
// other on the rest, where their kernels begin in another order on another GPU.
class GpuLaunchTurns : public GpuSpeculation {
 protected:
  void SetUp() override {
    node_.in_stream_image.resize(1000, std::byte{42});
    GpuSpeculation::SetUp();
  }
};

TEST_F(GpuLaunchTurns, WhatWasLaunchedAheadMakesWayForALargeOneThatAllRanksHaveCalled) {
  const auto ranks = group(2), others = group(2);
  const auto same = plans(ranks), theirs = plans(others);
  speculate(ranks, same);
  run(others, theirs);
  EXPECT_TRUE(eventually([&] { return misses() == ahead_; })) << misses();
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; })) << "and rests for a while";
  for (int i = 0; i < 10; ++i) {
    run(ranks, same);
    run(others, theirs);
  }
}

TEST_F(GpuLaunchTurns, ALargeOneThatRanksHaveBegunMakesWayAtOnce) {
  const auto ranks = group(2), others = group(2);
  const auto same = plans(ranks), theirs = plans(others);
  speculate(ranks, same);
  call(*ranks[0], same[0], 3);
  run(others, theirs);
  call(*ranks[1], same[1], 3);
  expect_sum(ranks, 6);
}

TEST_F(GpuLaunchTurns, LargeOnesOfManyCommunicatorsEndInWhateverOrderRanksCallThem) {
  std::vector<std::vector<GpuRank*>> groups;
  std::vector<std::vector<PlanId>> made;
  for (int i = 0; i < 5; ++i) {
    groups.push_back(group(i % 2 == 0 ? 3 : 2));
    made.push_back(plans(groups.back()));
  }
  std::uint32_t random = 7;
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<std::pair<std::size_t, std::size_t>> calls;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      for (std::size_t rank = 0; rank < groups[i].size(); ++rank) calls.emplace_back(i, rank);
    }
    while (!calls.empty()) {
      random = random * 1'664'525 + 1'013'904'223;
      const std::size_t next = (random >> 8) % calls.size();
      const auto [i, rank] = calls[next];
      calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(next));
      call(*groups[i][rank], made[i][rank], static_cast<float>(i + 1));
    }
    for (std::size_t i = 0; i < groups.size(); ++i)
      ASSERT_NO_FATAL_FAILURE(
          expect_sum(groups[i], static_cast<float>((i + 1) * groups[i].size())));
  }
}

TEST_F(GpuLaunchTurns, OneThatHangsHoldsTheOthersUntilItsDeadlineAndNotForEver) {
  const auto ranks = group(2), others = group(2);
  const auto theirs = plans(others);
  node_.hold_launches = true;
  for (std::size_t i = 0; i < 2; ++i)
    call(*ranks[i], plan(*ranks[i], kLarge, milliseconds(200)), 1);
  ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 2; }));
  for (std::size_t i = 0; i < 2; ++i) call(*others[i], theirs[i], 2);
  for (const GpuRank* rank : ranks)
    EXPECT_EQ(name_of(reason_from(rank->closed().reason)), name_of(Reason::Timeout));
  node_.hold_launches = false;
  expect_sum(others, 4);
}

}  // namespace
}  // namespace arcomm::test
