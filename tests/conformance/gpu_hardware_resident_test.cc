// What ResidentGrid promises, as kernels/resident/grid.h words it.
#include "tests/conformance/gpu_hardware_fixture.h"

namespace arcomm {
namespace {

// A communicator of the grids' own; its mailboxes and scratch, by rank.
struct ResidentGroup {
  std::vector<Memory> mailboxes, scratch;
  std::vector<std::uint32_t> slots;
  std::uint32_t before = 0;  // number of the last operation that went before
};

class GpuResidentConformance : public GpuHardwareConformance {
 protected:
  static constexpr std::uint32_t kFirstPlan = 5;  // of rank 0; the next one is of rank 1

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GpuHardwareConformance::SetUp());
    if (!IsSkipped()) make(main_);
  }
  void TearDown() override {
    if (node_ != nullptr) {
      EXPECT_TRUE(node_->fill(false));
    }
    for (Rank rank = 0; rank < parts_.size(); ++rank) {
      if (grid(rank).pause(kPatience)) continue;
      // Whatever is destroyed now would wait for it, for ever.
      std::fprintf(stderr, "the resident grid of rank %u does not leave\n", rank);
      std::_Exit(1);
    }
    for (Rank rank = 0; rank < parts_.size(); ++rank)
      EXPECT_TRUE(grid(rank).clear_plan(kFirstPlan + rank));
    remove(main_);
    main_ = {};
    GpuHardwareConformance::TearDown();
  }

  ResidentGrid& grid(Rank rank) const { return *seat(rank).hardware->grid; }
  static DeviceMailbox* box(const ResidentGroup& group, Rank rank) {
    return reinterpret_cast<DeviceMailbox*>(group.mailboxes[rank].data());
  }
  static ResidentMember member(const ResidentGroup& group, Rank rank) {
    ResidentMember made{
        .mailbox = box(group, rank), .rank = rank, .ranks = kRanks, .number = group.before};
    for (Rank other = 0; other < kRanks; ++other) made.scratch[other] = group.scratch[other].data();
    return made;
  }
  void make(ResidentGroup& group) {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      group.mailboxes.push_back(cleared(rank, kMailboxBytes));
      group.scratch.push_back(cleared(rank, seat(rank).hardware->resident_scratch_bytes));
    }
    for (Rank rank = 0; rank < kRanks; ++rank) {
      if (group.before != 0) post(group, rank, group.before);  // as those before have left it
      const auto slot = grid(rank).add_member(member(group, rank));
      ASSERT_TRUE(slot.ok()) << slot.error().to_string();
      group.slots.push_back(*slot);
      set_plan(group, rank, plan(rank));
    }
  }
  void remove(ResidentGroup& group) {
    for (Rank rank = 0; rank < group.slots.size(); ++rank)
      EXPECT_TRUE(grid(rank).remove_member(group.slots[rank]));
    group.slots.clear();
  }
  ResidentPlan plan(Rank rank, std::chrono::nanoseconds timeout = kPatience) const {
    return {.send = parts_[rank].send.data(),
            .recv = parts_[rank].recv.data(),
            .count = kCount,
            .timeout_ns = static_cast<std::uint64_t>(timeout.count())};
  }
  void set_plan(const ResidentGroup& group, Rank rank, const ResidentPlan& plan) {
    const Status set = grid(rank).set_plan(kFirstPlan + rank, group.slots[rank], plan);
    ASSERT_TRUE(set) << set.error().to_string();
  }
  void resume() {
    for (Rank rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(grid(rank).resume());
  }
  void pause() {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(grid(rank).pause(kPatience));
      ASSERT_FALSE(grid(rank).running());
    }
  }
  void post(const ResidentGroup& group, Rank rank, const Doorbell& rung) {
    ASSERT_TRUE(node_->store(rank, &box(group, rank)->paths[0].doorbell, to_word(rung)));
  }
  void post(const ResidentGroup& group, Rank rank, std::uint32_t number) {
    post(group, rank, {.number = number, .plan = kFirstPlan + rank});
  }
  void post_captured(const ResidentGroup& group, Rank rank, std::uint32_t number, std::uint64_t n) {
    post(group, rank,
         {.number = number, .plan = kFirstPlan + rank, .identity = identity_of_captured(n)});
  }
  ResidentStatus status(const ResidentGroup& group, Rank rank) const {
    return grid(rank).status(group.slots[rank]);
  }
  void expect_done(const ResidentGroup& group, Rank rank, std::uint32_t number) {
    ASSERT_TRUE(eventually([&] { return status(group, rank).done == number; })) << "rank " << rank;
    EXPECT_EQ(in_mailbox(rank, box(group, rank)->paths[0].done), to_word(Done{.number = number}));
    EXPECT_EQ(status(group, rank).failed.code, 0);
  }
  void expect_done(const ResidentGroup& group, std::uint32_t number) {
    for (Rank rank = 0; rank < kRanks; ++rank)
      ASSERT_NO_FATAL_FAILURE(expect_done(group, rank, number));
  }
  void expect_pending_for_a_while(Rank rank) {
    const auto until = std::chrono::steady_clock::now() + kWhile;
    do {
      ASSERT_EQ(status(main_, rank).done, 0U);
      ASSERT_EQ(status(main_, rank).failed.code, 0);
    } while (std::chrono::steady_clock::now() < until);
    EXPECT_EQ(in_mailbox(rank, box(main_, rank)->paths[0].done), 0U);
  }
  // What is told to the owner and to the client, in the same words.
  void expect_failed(const ResidentGroup& group, Rank rank, ErrorCode code, Reason reason,
                     Rank culprit, std::uint32_t number) {
    ASSERT_TRUE(eventually([&] { return status(group, rank).failed.code != 0; }));
    const Done failed = status(group, rank).failed;
    EXPECT_EQ(name_of(error_code_from(failed.code)), name_of(code));
    EXPECT_EQ(name_of(reason_from(failed.reason)), name_of(reason));
    EXPECT_EQ(failed.culprit_rank, static_cast<std::int16_t>(culprit));
    EXPECT_EQ(failed.number, number);
    EXPECT_EQ(in_mailbox(rank, box(group, rank)->closed), to_word(failed));
  }

  ResidentGroup main_;
};

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

TEST_P(GpuResidentConformance, AClearedPlanStartsNothing) {
  resume();
  ASSERT_TRUE(grid(0).clear_plan(kFirstPlan));
  EXPECT_TRUE(grid(0).running());
  post(main_, 0, 1);
  expect_failed(main_, 0, ErrorCode::Aborted, Reason::UnknownHandle, 0, 1);
  expect_untouched();
}

TEST_P(GpuResidentConformance, AnotherMembersPlanStartsNothing) {
  resume();
  post(main_, 1, {.number = 1, .plan = kFirstPlan});
  expect_failed(main_, 1, ErrorCode::Aborted, Reason::UnknownHandle, 1, 1);
  expect_untouched();
}

TEST_P(GpuResidentConformance, ANumberThatIsNotTheNextOneEndsTheMember) {
  resume();
  post(main_, 0, 2);
  expect_failed(main_, 0, ErrorCode::Aborted, Reason::Quarantined, 0, 2);
  expect_untouched();
}

TEST_P(GpuResidentConformance, RanksThatAskForDifferentOperationsNameEachOther) {
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

TEST_P(GpuResidentConformance, AMissingRankIsNamedAfterThePlansTimeout) {
  set_plan(main_, 0, plan(0, kShort));
  resume();
  const auto since = std::chrono::steady_clock::now();
  post(main_, 0, 1);
  expect_failed(main_, 0, ErrorCode::DeadlineExceeded, Reason::Timeout, 1, 1);
  EXPECT_GE(std::chrono::steady_clock::now() - since, kShort * 9 / 10);
  expect_untouched();
}

TEST_P(GpuResidentConformance, AbortEndsAMembersOperationAndTheLaterOnesInTheOwnersWords) {
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

TEST_P(GpuResidentConformance, AFullGridSaysSoUntilAMemberIsRemoved) {
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

TEST_P(GpuResidentConformance, AFreedSlotsPlansAreNotItsNextMembers) {
  remove(main_);
  const auto slot = grid(0).add_member(member(main_, 0));  // its plan is still there
  ASSERT_TRUE(slot.ok());
  main_.slots.push_back(*slot);
  resume();
  post(main_, 0, 1);
  expect_failed(main_, 0, ErrorCode::Aborted, Reason::UnknownHandle, 0, 1);
}

TEST_P(GpuResidentConformance, WhatIsNoPlanForTheGridIsRefused) {
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

INSTANTIATE_TEST_SUITE_P(Hardware, GpuResidentConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
