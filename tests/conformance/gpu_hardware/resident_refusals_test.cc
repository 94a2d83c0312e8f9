// What a ResidentGrid refuses or ends, and whom it names, as kernels/resident/grid.h words it.
#include "tests/conformance/gpu_hardware/resident_fixture.h"

namespace arcomm {
namespace {

class GpuResidentRefusals : public GpuResidentConformance {};

TEST_P(GpuResidentRefusals, AClearedPlanStartsNothing) {
  resume();
  ASSERT_TRUE(grid(0).clear_plan(kFirstPlan));
  EXPECT_TRUE(grid(0).running());
  post(main_, 0, 1);
  expect_failed(main_, 0, ErrorCode::Aborted, Reason::UnknownHandle, 0, 1);
  expect_untouched();
}

TEST_P(GpuResidentRefusals, AnotherMembersPlanStartsNothing) {
  resume();
  post(main_, 1, {.number = 1, .plan = kFirstPlan});
  expect_failed(main_, 1, ErrorCode::Aborted, Reason::UnknownHandle, 1, 1);
  expect_untouched();
}

TEST_P(GpuResidentRefusals, ANumberThatIsNotTheNextOneEndsTheMember) {
  resume();
  post(main_, 0, 2);
  expect_failed(main_, 0, ErrorCode::Aborted, Reason::Quarantined, 0, 2);
  expect_untouched();
}

TEST_P(GpuResidentRefusals, RanksThatAskForDifferentOperationsNameEachOther) {
  ResidentPlan fewer = plan(1);
  fewer.count = kCount - 8;
  set_plan(main_, 1, fewer);
  resume();
  for (Rank rank = 0; rank < kRanks; ++rank) post(main_, rank, 1);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    expect_failed(main_, rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 1 - rank, 1);
  }
  expect_untouched();
}

TEST_P(GpuResidentRefusals, AMissingRankIsNamedAfterThePlansTimeout) {
  set_plan(main_, 0, plan(0, kShort));
  resume();
  const auto since = std::chrono::steady_clock::now();
  post(main_, 0, 1);
  expect_failed(main_, 0, ErrorCode::DeadlineExceeded, Reason::Timeout, 1, 1);
  EXPECT_GE(std::chrono::steady_clock::now() - since, kShort * 9 / 10);
  expect_untouched();
}

TEST_P(GpuResidentRefusals, AbortEndsAMembersOperationAndTheLaterOnesInTheOwnersWords) {
  resume();
  post(main_, 0, 1);
  expect_pending_for_a_while(0);
  const Done why{.number = 1,
                 .code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                 .reason = static_cast<std::uint8_t>(Reason::Revoked),
                 .culprit_rank = 1};
  ASSERT_TRUE(grid(0).abort_member(main_.slots[0], why));
  expect_failed(main_, 0, ErrorCode::Aborted, Reason::Revoked, 1, 1);
  post(main_, 0, 2);
  std::this_thread::sleep_for(kWhile);
  expect_failed(main_, 0, ErrorCode::Aborted, Reason::Revoked, 1, 1);
  EXPECT_EQ(status(main_, 0).done, 0U);
  expect_untouched();
}

TEST_P(GpuResidentRefusals, AFullGridSaysSoUntilAMemberIsRemoved) {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t more = 0; more <= kResidentMembers; ++more) {
    const auto slot = grid(0).add_member(member(main_, 0));
    if (slot) {
      EXPECT_LT(*slot, kResidentMembers);
      slots.push_back(*slot);
      continue;
    }
    EXPECT_EQ(slot.error().code, ErrorCode::ResourceExhausted);
    break;
  }
  const std::size_t others = seat(0).hardware == seat(1).hardware ? 2 : 1;
  ASSERT_EQ(slots.size() + others, kResidentMembers);
  ASSERT_TRUE(grid(0).remove_member(slots[3]));
  const auto again = grid(0).add_member(member(main_, 0));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, slots[3]);
  for (const std::uint32_t slot : slots) EXPECT_TRUE(grid(0).remove_member(slot));
}

TEST_P(GpuResidentRefusals, AFreedSlotsPlansAreNotItsNextMembers) {
  remove(main_);
  const auto slot = grid(0).add_member(member(main_, 0));  // its plan is still there
  ASSERT_TRUE(slot.ok());
  main_.slots.push_back(*slot);
  resume();
  post(main_, 0, 1);
  expect_failed(main_, 0, ErrorCode::Aborted, Reason::UnknownHandle, 0, 1);
}

TEST_P(GpuResidentRefusals, WhatIsNoPlanForTheGridIsRefused) {
  ResidentPlan large = plan(0);
  large.count = kMaxResidentBytes / sizeof(float) + 1;
  ResidentPlan coded = plan(0), collective = plan(0);
  coded.codec = Codec::Q8;
  collective.collective = static_cast<Collective>(kCollectives);
  const std::uint32_t slot = main_.slots[0];
  for (const Status& refused :
       {grid(0).set_plan(kFirstPlan, slot, large), grid(0).set_plan(kFirstPlan, slot, coded),
        grid(0).set_plan(kFirstPlan, slot, collective),
        grid(0).set_plan(kMaxDevicePlans, slot, plan(0)),
        grid(0).set_plan(kFirstPlan, kResidentMembers, plan(0))}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuResidentRefusals, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
