// What GpuLauncher promises of operations that wait behind a gate for their client's doorbell, as
// kernels/launch/gated_launch.h words it.
#include "tests/conformance/gpu_hardware/fixture.h"

namespace arcomm {
namespace {

class GpuGateConformance : public GpuHardwareConformance {
 protected:
  static constexpr std::uint32_t kPlan = 3, kIdentity = identity_of_captured(1'000);

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GpuHardwareConformance::SetUp());
    if (IsSkipped()) return;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      if (seat(rank).queue == 0) GTEST_SKIP() << "nothing may wait for a client here";
    }
  }
  // Of the gate with that number: odd ones have parity 1.
  CudaGate gate(Rank rank, std::uint32_t number) {
    return {.doorbell = doorbell(rank),
            .plan = kPlan,
            .identity = kIdentity,
            .parity = number % 2,
            .lifetime_ns = static_cast<std::uint64_t>(lifetime_.count())};
  }
  void launch_behind(Rank rank, std::uint32_t gate_number, const CudaAllReduce& call) {
    const Status launched = launcher(rank).launch_behind(seat(rank).queue, gate(rank, gate_number),
                                                         CudaAlgorithm::OneShotLl16, call);
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  void launch_behind_all(std::uint32_t gate_number) {
    for (Rank rank = 0; rank < kRanks; ++rank) launch_behind(rank, gate_number, call(rank));
  }
  void ring(Rank rank, const Doorbell& rung) {
    ASSERT_TRUE(node_->store(rank, doorbell(rank), to_word(rung)));
  }
  void ring(Rank rank, std::uint32_t number) { ring(rank, {number, kPlan, kIdentity}); }
  void ring_all(std::uint32_t number) {
    for (Rank rank = 0; rank < kRanks; ++rank) ring(rank, number);
  }
  void cancel(Rank rank, std::uint32_t gate_number) {
    ASSERT_TRUE(launcher(rank).cancel(parts_[rank].scratch.data(), gate_number));
    ASSERT_TRUE(launcher(rank).flush(kPatience));
  }
  void expect_nothing_happened() {
    expect_untouched();
    for (Rank rank = 0; rank < kRanks; ++rank) expect_silence(rank);
  }

  std::chrono::nanoseconds lifetime_ = 10s;
};

TEST_P(GpuGateConformance, WhatIsBehindAGateTouchesNothingBeforeItsDoorbellAndRunsAfter) {
  launch_behind_all(1);
  for (Rank rank = 0; rank < kRanks; ++rank) expect_busy_for_a_while(rank);
  expect_nothing_happened();
  ring(0, 1);
  expect_busy_for_a_while(0);  // for the other
  expect_nothing_happened();
  ring(1, 1);
  expect_done();
  expect_sums(0);
  expect_idle();
}

TEST_P(GpuGateConformance, OnlyTheDoorbellOfItsPlanIdentityAndNumberOpensAGate) {
  launch_behind_all(1);
  for (Rank rank = 0; rank < kRanks; ++rank) ring(rank, {1, kPlan + 1, kIdentity});
  expect_busy_for_a_while(0);
  for (Rank rank = 0; rank < kRanks; ++rank) ring(rank, {1, kPlan, kIdentity + 1});
  expect_busy_for_a_while(0);
  ring_all(2);
  expect_busy_for_a_while(0);
  expect_nothing_happened();
  ring_all(1);
  expect_done();
  expect_sums(0);
}

// Numbers count modulo 2^32. What the word of the last cancelled gate has come round to gives up as
// one that was cancelled does, and its caller launches it again: at most so many in a row.
TEST_P(GpuGateConformance, NumbersOfOperationsAndGatesComeRound) {
  constexpr std::uint32_t kBefore = 0xffff'ffda, kLast = 40;
  for (Rank rank = 0; rank < kRanks; ++rank)
    ASSERT_TRUE(node_->age(rank, parts_[rank].scratch.data(), kBefore));
  std::uint32_t ended = kBefore, gave_up = 0;
  for (std::uint32_t number = kBefore + 1; number != kLast; ++number) {
    const auto base = static_cast<float>(number % 100);
    put_all(base);
    launch_behind_all(number);
    ring_all(ended + 1);
    ASSERT_NO_FATAL_FAILURE(expect_idle());
    if (0U - number < kMostGatesAhead) {  // nothing was ever cancelled: the word is 0
      ++gave_up;
      ASSERT_NO_FATAL_FAILURE(expect_untouched());
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_done(++ended));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
  }
  EXPECT_EQ(gave_up, kMostGatesAhead);
}

// Two in each stream; inputs come when the gates wait already.
TEST_P(GpuGateConformance, GatesOfBothParitiesOpenInTurn) {
  for (std::uint32_t number = 1; number <= 4; ++number) launch_behind_all(number);
  for (std::uint32_t number = 1; number <= 4; ++number) {
    const auto base = static_cast<float>(10 * number);
    put_all(base);
    ring_all(number);
    ASSERT_NO_FATAL_FAILURE(expect_done(number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
  }
  expect_idle();
}

TEST_P(GpuGateConformance, APreparedLaunchRunsManyTimesWithNewInputs) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    auto made = launcher(rank).prepare(seat(rank).queue, gate(rank, 1), CudaAlgorithm::OneShotLl16,
                                       call(rank));
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    prepared_.push_back(std::move(made).value());
  }
  for (auto& one : prepared_) ASSERT_TRUE(one->launch(1));
  for (std::uint32_t number = 1; number <= 6; ++number) {
    // The next one, while this one waits.
    for (auto& one : prepared_) ASSERT_TRUE(one->launch((number + 1) % 2));
    const auto base = static_cast<float>(number);
    put_all(base);
    ring_all(number);
    ASSERT_NO_FATAL_FAILURE(expect_done(number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
  }
  for (Rank rank = 0; rank < kRanks; ++rank) cancel(rank, 7);
  expect_idle();
}

TEST_P(GpuGateConformance, AnOperationBehindAGateFollowsTheNumbersOfThoseWithout) {
  launch_all(8);
  expect_done(8);
  expect_idle();
  put_all(2);
  launch_behind_all(1);
  ring_all(9);
  expect_done(9);
  expect_sums(2);
  expect_idle();
  launch_all(10);
  expect_done(10);
}

TEST_P(GpuGateConformance, WhatIsCancelledBeforeItsDoorbellTouchesNothingAndIsGone) {
  launch_behind_all(1);
  for (Rank rank = 0; rank < kRanks; ++rank) expect_busy_for_a_while(rank);
  for (Rank rank = 0; rank < kRanks; ++rank) cancel(rank, 1);
  expect_idle();
  ring_all(1);
  std::this_thread::sleep_for(kWhile);
  expect_nothing_happened();
  launch_behind_all(2);  // the call comes to the next one, with the number that is still due
  expect_done(1);
  expect_sums(0);
  expect_idle();
}

TEST_P(GpuGateConformance, WhatIsCancelledBeforeItIsLaunchedDoesNotWait) {
  for (Rank rank = 0; rank < kRanks; ++rank) cancel(rank, 2);
  launch_behind_all(1);  // that a later one is cancelled cancels it, too
  launch_behind_all(2);
  expect_idle();
  expect_nothing_happened();
}

TEST_P(GpuGateConformance, WhereOneRankCancelsNoRankRunsThoughTheOtherHasOpened) {
  launch_behind_all(1);
  ring(0, 1);
  expect_busy_for_a_while(0);
  cancel(1, 1);
  expect_idle();
  expect_nothing_happened();
}

TEST_P(GpuGateConformance, ARankThatCancelsWaitsForNobodyAndWhoOpensLaterDoesNotRun) {
  launch_behind_all(1);
  cancel(0, 1);
  ASSERT_TRUE(becomes_idle(0));
  expect_busy_for_a_while(1);  // for its own doorbell
  ring(1, 1);
  expect_idle();
  expect_nothing_happened();
}

TEST_P(GpuGateConformance, AGateThatHasWaitedForItsLifetimeDoesNotOpen) {
  lifetime_ = kShort;
  launch_behind_all(1);
  expect_idle();
  ring_all(1);
  std::this_thread::sleep_for(kWhile);
  expect_nothing_happened();
}

TEST_P(GpuGateConformance, ARankWhoseGateStaysShutIsNamedAfterTheCallsTimeout) {
  CudaAllReduce impatient = call(0);
  impatient.timeout_ns = std::chrono::nanoseconds(kShort).count();
  launch_behind(0, 1, impatient);
  launch_behind(1, 1, call(1));
  ring(0, 1);
  expect_failed(0, CudaOutcomeCode::Timeout);
  EXPECT_EQ(outcome(0).culprit, 1U);
  ASSERT_TRUE(becomes_idle(0));
  expect_busy_for_a_while(1);
  cancel(1, 1);
  ASSERT_TRUE(becomes_idle(1));
  expect_untouched();
}

TEST_P(GpuGateConformance, AbortEndsAGateAndTellsSo) {
  launch_behind_all(1);
  expect_busy_for_a_while(0);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(launcher(rank).abort(parts_[rank].scratch.data()));
    ASSERT_TRUE(launcher(rank).flush(kPatience));
    expect_failed(rank, CudaOutcomeCode::Aborted);
  }
  expect_idle();
  expect_untouched();
}

TEST_P(GpuGateConformance, NoElementsDoNotWaitForTheirCall) {
  CudaAllReduce nothing = call(0);
  nothing.count = 0;
  const Status refused =
      launcher(0).launch_behind(seat(0).queue, gate(0, 1), CudaAlgorithm::OneShotLl16, nothing);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument);
  EXPECT_TRUE(is_idle(0));
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuGateConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
