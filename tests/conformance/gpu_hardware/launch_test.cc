// What GpuLauncher promises of operations that begin at once, and of what goes beside them.
#include "tests/conformance/gpu_hardware/fixture.h"

namespace arcomm {
namespace {

TEST_P(GpuHardwareConformance, AnOperationLaunchedOnAllRanksGivesTheSumAndTellsHostAndMailbox) {
  launch_all();
  expect_done();
  expect_sums(0);
  expect_idle();
}

TEST_P(GpuHardwareConformance, AnOperationNeedsNobodyToTell) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    CudaAllReduce silent = call(rank);
    silent.done = silent.host_done = nullptr;
    silent.host_outcome = nullptr;
    launch(rank, silent);
  }
  expect_idle();
  expect_sums(0);
  for (Rank rank = 0; rank < kRanks; ++rank) expect_silence(rank);
}

// Each one's input is the output of the one before.
TEST_P(GpuHardwareConformance, OperationsOfOneQueueRunInOrder) {
  for (std::uint32_t number = 1; number <= 6; ++number) {
    for (Rank rank = 0; rank < kRanks; ++rank) launch(rank, call(rank, number, number % 2 == 0));
  }
  expect_done(6);
  expect_idle();
  for (Rank rank = 0; rank < kRanks; ++rank) {
    expect_sums(rank, 0, parts_[rank].recv, 16);  // after five of them
    expect_sums(rank, 0, parts_[rank].send, 32);
  }
}

TEST_P(GpuHardwareConformance, BothParitiesAlternate) {
  for (std::uint32_t number = 1; number <= 6; ++number) {
    const auto base = static_cast<float>(number);
    put_all(base);
    launch_all(number, number % 2);
    ASSERT_NO_FATAL_FAILURE(expect_done(number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
  }
}

// Whatever runs between the two: a tuner believes no time without it.
TEST_P(GpuHardwareConformance, ATrialTellsRightSumsFromNone) {
  constexpr std::uint64_t kElements = kCount * sizeof(float) / size_of(kTrialType);
  const auto trial = [&](Rank rank, std::uint32_t seed) {
    return TrialCall{.send = parts_[rank].send.data(),
                     .recv = parts_[rank].recv.data(),
                     .wrong = &words(rank).wrong,
                     .count = kElements,
                     .seed = seed,
                     .rank = rank,
                     .ranks = kRanks};
  };
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    for (Rank rank = 0; rank < kRanks; ++rank)
      EXPECT_TRUE(launcher(rank).fill_trial(seat(rank).queue, trial(rank, seed)));
    expect_idle();
    for (Rank rank = 0; rank < kRanks && seed < 3; ++rank) {
      CudaAllReduce made = call(rank, seed);
      made.count = kElements;
      made.dtype = kTrialType;
      launch(rank, made);
    }
    if (seed < 3) expect_done(seed);
    for (Rank rank = 0; rank < kRanks; ++rank)
      EXPECT_TRUE(launcher(rank).check_trial(seat(rank).queue, trial(rank, seed)));
    expect_idle();
    for (Rank rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(words(rank).wrong != 0, seed == 3) << "rank " << rank << ", seed " << seed;
  }
}

TEST_P(GpuHardwareConformance, OperationsGoOnWhereTheScratchHasStartedOver) {
  for (std::uint32_t number = 1; number <= 5; ++number) {
    const auto base = static_cast<float>(number);
    put_all(base);
    launch_all(number);
    ASSERT_NO_FATAL_FAILURE(expect_done(number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
    expect_idle();
    for (Rank rank = 0; rank < kRanks && number % 2 == 0; ++rank) {
      EXPECT_TRUE(launcher(rank).start_over(seat(rank).queue, parts_[rank].scratch.data(), kRanks));
    }
    expect_idle();
  }
}

TEST_P(GpuHardwareConformance, AQueueIsNotIdleWhileAnOperationWaitsForAMissingRankAndIdleAfter) {
  launch(0, call(0));
  expect_busy_for_a_while(0);
  EXPECT_TRUE(is_idle(1));
  expect_untouched();
  expect_silence(0);
  launch(1, call(1));
  expect_done();
  expect_sums(0);
  expect_idle();
}

TEST_P(GpuHardwareConformance, AMissingRankIsNamedAfterTheCallsTimeout) {
  CudaAllReduce impatient = call(0);
  impatient.timeout_ns = std::chrono::nanoseconds(kShort).count();
  const auto since = std::chrono::steady_clock::now();
  launch(0, impatient);
  expect_failed(0, CudaOutcomeCode::Timeout);
  EXPECT_GE(std::chrono::steady_clock::now() - since, kShort * 9 / 10);
  EXPECT_EQ(outcome(0).culprit, 1U);
  ASSERT_TRUE(becomes_idle(0));
  expect_untouched();
}

TEST_P(GpuHardwareConformance, AfterAFailureWhatFollowsOnThatScratchTellsTheFirst) {
  CudaAllReduce impatient = call(0);
  impatient.timeout_ns = std::chrono::nanoseconds(kShort).count();
  launch(0, impatient);
  expect_failed(0, CudaOutcomeCode::Timeout);
  ASSERT_TRUE(becomes_idle(0));
  words(0) = {};
  launch(0, call(0, 2));
  expect_failed(0, CudaOutcomeCode::Timeout);
  EXPECT_EQ(outcome(0).culprit, 1U);
  ASSERT_TRUE(becomes_idle(0));
}

TEST_P(GpuHardwareConformance, AbortEndsWhatWaits) {
  launch(0, call(0));
  expect_busy_for_a_while(0);
  ASSERT_TRUE(launcher(0).abort(parts_[0].scratch.data()));
  ASSERT_TRUE(launcher(0).flush(kPatience));
  expect_failed(0, CudaOutcomeCode::Aborted);
  ASSERT_TRUE(becomes_idle(0));
  expect_untouched();
}

TEST_P(GpuHardwareConformance, WhatIsLaunchedAfterAnAbortEndsAtOnce) {
  ASSERT_TRUE(launcher(0).abort(parts_[0].scratch.data()));
  ASSERT_TRUE(launcher(0).flush(kPatience));
  launch(0, call(0));
  expect_failed(0, CudaOutcomeCode::Aborted);
  ASSERT_TRUE(becomes_idle(0));
}

// No rank needs another.
TEST_P(GpuHardwareConformance, NoElementsTellDoneAndTouchNothing) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    CudaAllReduce nothing = call(rank);
    nothing.count = 0;
    launch(rank, nothing);
    expect_done(rank, 1);
    ASSERT_TRUE(becomes_idle(rank));
  }
  expect_untouched();
}

TEST_P(GpuHardwareConformance, AQueueIsHeldUntilTheWordHasTheValue) {
  if (seat(0).queue == 0) GTEST_SKIP() << "nothing may wait for a client here";
  hold(0, 7);
  expect_busy_for_a_while(0);
  launch_all();
  ASSERT_TRUE(launcher(0).store(doorbell(0), 6));
  ASSERT_TRUE(launcher(0).flush(kPatience));
  expect_busy_for_a_while(0);
  expect_untouched();
  ASSERT_TRUE(launcher(0).store(doorbell(0), 7));
  expect_done();
  expect_sums(0);
  expect_idle();
}

TEST_P(GpuHardwareConformance, WhatIsStoredPastAWaitingQueueIsThereAfterFlush) {
  launch(0, call(0));
  expect_busy_for_a_while(0);
  ASSERT_TRUE(launcher(0).store(&mailbox(0)->closed, 0x0123'4567'89ab'cdefULL));
  ASSERT_TRUE(launcher(0).flush(kPatience));
  EXPECT_EQ(in_mailbox(0, mailbox(0)->closed), 0x0123'4567'89ab'cdefULL);
  launch(1, call(1));
  expect_done();
}

TEST_P(GpuHardwareConformance, WhatAnAlgorithmDoesNotTakeIsRefused) {
  CudaAllReduce large = call(0);
  large.count = kMaxLl16Bytes;
  const Status refused = launcher(0).launch(seat(0).queue, 0, CudaAlgorithm::OneShotLl16, large);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::OutOfRange);
  EXPECT_TRUE(is_idle(0));
}

TEST_P(GpuHardwareConformance, AGpuThatRunsAndWaitsIsHealthy) {
  launch(0, call(0));
  for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(launcher(rank).health());
  launch(1, call(1));
  expect_done();
  for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(launcher(rank).health());
}

// By the same word of each rank's own, and nobody else's.
TEST_P(GpuHardwareConformance, EachRankHasWordsOfItsOwn) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ASSERT_GE(launcher(rank).words().size(), kRanks);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&words(rank)) % alignof(RankCompletion), 0U);
  }
  EXPECT_NE(&words(0), &words(1));
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuHardwareConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
