// What ResidentGrid promises, as kernels/resident/grid.h words it.
#include "tests/conformance/gpu_hardware/resident_fixture.h"

namespace arcomm {
namespace {

TEST_P(GpuResidentConformance, NumbersComeRound) {
  ResidentGroup aged;
  aged.before = 0xffff'ffec;
  ASSERT_NO_FATAL_FAILURE(make(aged));
  for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_EQ(status(aged, rank).done, aged.before);
  ASSERT_NO_FATAL_FAILURE(resume());
  for (std::uint32_t number = aged.before + 1; number != 25; ++number) {
    const auto base = static_cast<float>(number % 50);
    put_all(base);
    for (Rank rank = 0; rank < kRanks; ++rank) post(aged, rank, number);
    ASSERT_NO_FATAL_FAILURE(expect_done(aged, number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
    if (number % 8 != 0) continue;  // what the grid had is as it was when it comes back
    ASSERT_NO_FATAL_FAILURE(pause());
    ASSERT_NO_FATAL_FAILURE(resume());
  }
  ASSERT_NO_FATAL_FAILURE(pause());
  remove(aged);
}

TEST_P(GpuResidentConformance, PostedOperationsRunWithNoLaunch) {
  resume();
  for (std::uint32_t number = 1; number <= 5; ++number) {
    const auto base = static_cast<float>(number);
    put_all(base);
    for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, number);
    ASSERT_NO_FATAL_FAILURE(expect_done(main_, number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
  }
}

// A kernel may run what is rare by other code than what inference does.
TEST_P(GpuResidentConformance, OperationsThatEndInTheMiddleOfALineAreDoneOneAfterTheOther) {
  static_assert(kCount % 2 == 0, "a line has two elements");
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ResidentPlan odd = plan(rank);
    odd.count = kCount - 1;
    set_plan(main_, rank, odd);
  }
  resume();
  for (std::uint32_t number = 1; number <= 3; ++number) {
    const auto base = static_cast<float>(number);
    put_all(base);
    for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, number);
    ASSERT_NO_FATAL_FAILURE(expect_done(main_, number));
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const std::vector<float> values = floats(rank, parts_[rank].recv);
      const float sum = kRanks * base + kRanks * (kRanks - 1) / 2;
      EXPECT_EQ(values.front(), sum) << "rank " << rank;
      EXPECT_EQ(values[kCount - 2], sum + kRanks * ((kCount - 2) % 7)) << "rank " << rank;
      EXPECT_EQ(values.back(), kUntouched) << "rank " << rank;
    }
  }
}

TEST_P(GpuResidentConformance, NothingRunsBeforeResumeOrWithoutAllRanks) {
  for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_FALSE(grid(rank).running());
  post(main_, 0, 1);
  expect_pending_for_a_while(0);
  resume();
  EXPECT_TRUE(grid(0).running());
  expect_pending_for_a_while(0);
  EXPECT_TRUE(grid(0).started());
  expect_untouched();
  post(main_, 1, 1);
  expect_done(main_, 1);
  expect_sums(0);
}

// On one GPU both ranks share a grid, and what fills it fills both.
TEST_P(GpuResidentConformance, AGridThatFindsNoRoomHasNotStartedAndIsTakenBackAtOnce) {
  ASSERT_TRUE(node_->fill(true));
  resume();
  for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, 1);
  expect_pending_for_a_while(0);
  EXPECT_TRUE(grid(0).running());
  EXPECT_FALSE(grid(0).started());
  const auto since = std::chrono::steady_clock::now();
  pause();
  EXPECT_LT(std::chrono::steady_clock::now() - since, 1s) << "it waited for others' work";
  EXPECT_FALSE(grid(0).is_idle()) << "its launch is still to come to its end";
  // What may be done while no grid runs does not wait either, and what it was is not served later.
  const Status again = grid(0).resume();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::Unavailable);
  EXPECT_TRUE(grid(0).clear_plan(kFirstPlan));
  set_plan(main_, 0, plan(0));
  ASSERT_TRUE(node_->fill(false));
  std::this_thread::sleep_for(kWhile);
  EXPECT_TRUE(eventually([&] { return grid(0).is_idle(); }));
  expect_untouched();
  ASSERT_TRUE(eventually([&] { return grid(0).resume().ok(); }));
  resume();
  expect_done(main_, 1);
  EXPECT_TRUE(eventually([&] { return grid(0).started(); }));
  expect_sums(0);
}

TEST_P(GpuResidentConformance, AGridThatFindsRoomLaterStartsThen) {
  ASSERT_TRUE(node_->fill(true));
  resume();
  for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, 1);
  expect_pending_for_a_while(0);
  ASSERT_TRUE(node_->fill(false));
  expect_done(main_, 1);
  for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(grid(rank).started());
  expect_sums(0);
}

TEST_P(GpuResidentConformance, PauseAndResumeKeepWhatHasBegun) {
  resume();
  post(main_, 0, 1);
  expect_pending_for_a_while(0);
  pause();
  post(main_, 1, 1);
  expect_pending_for_a_while(1);
  expect_untouched();
  resume();
  expect_done(main_, 1);
  expect_sums(0);
}

// What it has handed over is all that the others need of it.
TEST_P(GpuResidentConformance, ARankWhoseGridHasLeftAfterBeginningHoldsUpNobody) {
  if (seat(0).hardware == seat(1).hardware) GTEST_SKIP() << "both ranks are in one grid";
  resume();
  post(main_, 0, 1);
  expect_pending_for_a_while(0);
  ASSERT_TRUE(grid(0).pause(kPatience));
  post(main_, 1, 1);
  expect_done(main_, 1, 1);
  expect_sums(1, 0, parts_[1].recv);
  expect_untouched(0);
  ASSERT_TRUE(grid(0).resume());
  expect_done(main_, 1);
  expect_sums(0);
}

TEST_P(GpuResidentConformance, WhatHasBegunGoesOnOnItsBuffersWhenItsPlanIsCleared) {
  resume();
  post(main_, 0, 1);
  expect_pending_for_a_while(0);
  pause();
  ResidentPlan other = plan(0);
  other.recv = static_cast<float*>(other.recv) + 8;
  const auto begun = [&](Rank rank, const ResidentPlan& plan) {
    const Result<bool> answer = grid(rank).has_begun(main_.slots[rank], plan);
    EXPECT_TRUE(answer.ok());
    return answer && *answer;
  };
  EXPECT_TRUE(begun(0, plan(0)));
  EXPECT_FALSE(begun(0, other));
  EXPECT_FALSE(begun(1, plan(1)));
  ASSERT_TRUE(grid(0).clear_plan(kFirstPlan));
  EXPECT_TRUE(begun(0, plan(0)));
  resume();
  post(main_, 1, 1);
  expect_done(main_, 1);
  expect_sums(0);
  pause();
  for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_FALSE(begun(rank, plan(rank)));
}

TEST_P(GpuResidentConformance, APlanThatIsSetAgainServesTheStartsFromThenOn) {
  resume();
  for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, 1);
  expect_done(main_, 1);
  put_all(3);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ResidentPlan back = plan(rank);
    std::swap(back.recv, const_cast<void*&>(back.send));
    set_plan(main_, rank, back);
  }
  EXPECT_TRUE(grid(0).running());
  for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, 2);
  expect_done(main_, 2);
  for (const float value : floats(0, parts_[0].send)) ASSERT_EQ(value, kRanks * kUntouched);
}

// Two graphs of one communicator, replayed on two streams in no order: they have the same shape,
// and were mixed in silence.
TEST_P(GpuResidentConformance, OperationsOfOneShapeThatRanksTakeForDifferentOnesAreNamed) {
  resume();
  for (Rank rank = 0; rank < kRanks; ++rank) post_captured(main_, rank, 1, rank);
  for (Rank rank = 0; rank < kRanks; ++rank)
    expect_failed(main_, rank, ErrorCode::FailedPrecondition, Reason::Reordered, 1 - rank, 1);
  expect_untouched();
}

TEST_P(GpuResidentConformance, ACallDoesNotMeetWhatAGraphHolds) {
  resume();
  post(main_, 0, 1);
  post_captured(main_, 1, 1, 0);
  for (Rank rank = 0; rank < kRanks; ++rank)
    expect_failed(main_, rank, ErrorCode::FailedPrecondition, Reason::Reordered, 1 - rank, 1);
  expect_untouched();
}

TEST_P(GpuResidentConformance, WhatAllRanksReplayInOneOrderRunsBetweenCalls) {
  resume();
  for (std::uint32_t number = 1; number <= 9; ++number) {
    const auto base = static_cast<float>(number);
    put_all(base);
    for (Rank rank = 0; rank < kRanks; ++rank) {
      if (number % 3 == 0) {
        post(main_, rank, number);
      } else {
        post_captured(main_, rank, number, 262'140 + number % 3);
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_done(main_, number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
  }
}

// Of no elements headers are compared all the same.
TEST_P(GpuResidentConformance, NoElementsOnAllRanksAreDoneAndAgainstSomeAMismatch) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ResidentPlan nothing = plan(rank);
    nothing.count = 0;
    set_plan(main_, rank, nothing);
  }
  resume();
  for (std::uint32_t number = 1; number <= 2; ++number) {
    for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, number);
    ASSERT_NO_FATAL_FAILURE(expect_done(main_, number));
  }
  set_plan(main_, 1, plan(1));
  for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, 3);
  for (Rank rank = 0; rank < kRanks; ++rank)
    expect_failed(main_, rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 1 - rank, 3);
  expect_untouched();
}

TEST_P(GpuResidentConformance, AFreedSlotServesAnotherCommunicatorFromItsFirstNumberOn) {
  resume();
  for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, 1);
  expect_done(main_, 1);
  pause();
  const std::vector<std::uint32_t> before = main_.slots;
  remove(main_);
  main_ = {};
  put_all(4);
  make(main_);
  EXPECT_EQ(main_.slots, before);
  resume();
  for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, 1);
  expect_done(main_, 1);
  expect_sums(4);
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuResidentConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
