// What is launched for all ranks at once.
#include "tests/conformance/gpu_hardware_fixture.h"

namespace arcomm {
namespace {

class GpuJointConformance : public GpuHardwareConformance {
 protected:
  void launch_together(const std::vector<CudaAllReduce>& calls, std::uint32_t parity = 0) {
    std::vector<JointPart> parts;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      parts.push_back(
          {.launcher = &launcher(rank), .queue = seat(rank).queue, .call = &calls[rank]});
    }
    const Status launched = launcher(1).launch_together(parts, parity, CudaAlgorithm::CopyEngine);
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  std::vector<CudaAllReduce> calls(std::uint32_t number = 1, bool back = false) {
    std::vector<CudaAllReduce> made;
    for (Rank rank = 0; rank < kRanks; ++rank) made.push_back(call(rank, number, back));
    return made;
  }
};

TEST_P(GpuJointConformance, WhatIsLaunchedForAllRanksAtOnceGivesTheSumAndTellsAll) {
  launch_together(calls());
  expect_done();
  expect_sums(0);
  expect_idle();
}

TEST_P(GpuJointConformance, ItKeepsOrderWithWhatIsLaunchedInTheRanksQueues) {
  launch_all(1);
  launch_together(calls(2, true));
  launch_all(3);
  expect_done(3);
  expect_idle();
  for (Rank rank = 0; rank < kRanks; ++rank) {
    expect_sums(rank, 0, parts_[rank].send, 2);
    expect_sums(rank, 0, parts_[rank].recv, 4);
  }
}

TEST_P(GpuJointConformance, NoElementsTellAllAndTouchNothing) {
  std::vector<CudaAllReduce> nothing = calls();
  for (CudaAllReduce& one : nothing) one.count = 0;
  launch_together(nothing);
  expect_done();
  expect_untouched();
  expect_idle();
}

TEST_P(GpuJointConformance, BothParitiesAlternate) {
  for (std::uint32_t number = 1; number <= 4; ++number) {
    const auto base = static_cast<float>(number);
    put_all(base);
    launch_together(calls(number), number % 2);
    ASSERT_NO_FATAL_FAILURE(expect_done(number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
    expect_idle();
  }
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuJointConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
