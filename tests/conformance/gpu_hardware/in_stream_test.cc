// What GpuLauncher promises of the operations that clients launch by themselves:
// launch_in_stream().
#include "tests/conformance/gpu_hardware/fixture.h"

namespace arcomm {
namespace {

class GpuInStreamConformance : public GpuHardwareConformance {
 protected:
  static constexpr InStreamShape kShape{.algorithm = InStreamAlgorithm::OneShotLl16, .blocks = 1};

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GpuHardwareConformance::SetUp());
    if (IsSkipped()) return;
    for (Rank rank = 0; rank < kRanks; ++rank)
      more_.push_back(cleared(rank, in_stream_exchange_bytes(kRanks)));
  }
  void TearDown() override {
    for (Rank rank = 0; rank < parts_.size(); ++rank) {
      if (!is_idle(rank)) close(rank);
    }
    GpuHardwareConformance::TearDown();
  }

  InStreamCall in_stream_call(Rank rank, std::chrono::nanoseconds timeout = kPatience) {
    InStreamCall made{.send = parts_[rank].send.data(),
                      .recv = parts_[rank].recv.data(),
                      .mailbox = mailbox(rank),
                      .doorbells = &words(rank).doorbells,
                      .timeout_ns = static_cast<std::uint64_t>(timeout.count()),
                      .count = kCount,
                      .rank = rank,
                      .ranks = kRanks};
    for (Rank other = 0; other < kRanks; ++other)
      made.exchange[other] = reinterpret_cast<InStreamControl*>(more_[other].data());
    return made;
  }
  void launch_in_stream(Rank rank, const InStreamCall& call) {
    const Status launched = launcher(rank).launch_in_stream(seat(rank).queue, kShape,
                                                            DType::Float32, ReduceOp::Sum, call);
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  void launch_all_in_stream() {
    for (Rank rank = 0; rank < kRanks; ++rank) launch_in_stream(rank, in_stream_call(rank));
  }
  // As if so many operations had been.
  void begin_behind(std::uint32_t number) {
    const std::vector<InStreamBlock> blocks(kMaxInStreamBlocks, {.taken = number, .ended = number});
    for (Rank rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(node_->copy_in(rank, more_[rank].data(), blocks.data(),
                                 blocks.size() * sizeof(InStreamBlock)));
    }
  }
  void close(Rank rank) {
    EXPECT_TRUE(node_->store(rank, &mailbox(rank)->closed, to_word(kClosed)));
  }
  std::uint64_t failure(Rank rank) const {
    return __atomic_load_n(&words(rank).doorbells.in_stream_failed, __ATOMIC_ACQUIRE);
  }
  // What the rank's host and its client are told, in the same words.
  void expect_failure(Rank rank, ErrorCode code, Reason reason, Rank culprit,
                      std::uint32_t number = 1) {
    ASSERT_TRUE(eventually([&] { return failure(rank) != 0; })) << "rank " << rank;
    const Done failed = done_from(failure(rank));
    EXPECT_EQ(name_of(error_code_from(failed.code)), name_of(code));
    EXPECT_EQ(name_of(reason_from(failed.reason)), name_of(reason));
    EXPECT_EQ(failed.culprit_rank, static_cast<std::int16_t>(culprit));
    EXPECT_EQ(failed.number, number);
    EXPECT_EQ(in_mailbox(rank, mailbox(rank)->failed), failure(rank));
  }
  void expect_no_failure() {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(failure(rank), 0U) << "rank " << rank;
      EXPECT_EQ(in_mailbox(rank, mailbox(rank)->failed), 0U) << "rank " << rank;
    }
  }

  static constexpr Done kClosed{.code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                                .reason = static_cast<std::uint8_t>(Reason::Revoked)};
};

TEST_P(GpuInStreamConformance, AnOperationGivesTheSumAndOnlyItsQueueTellsOfItsEnd) {
  launch_all_in_stream();
  expect_idle();
  expect_sums(0);
  expect_no_failure();
  for (Rank rank = 0; rank < kRanks; ++rank) expect_silence(rank);
}

TEST_P(GpuInStreamConformance, OperationsAreCountedAsTheyBegin) {
  for (std::uint32_t number = 1; number <= 5; ++number) {
    const auto base = static_cast<float>(number);
    put_all(base);
    launch_all_in_stream();
    expect_idle();
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
    for (Rank rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(__atomic_load_n(&words(rank).doorbells.in_stream_begun, __ATOMIC_ACQUIRE), number);
  }
  expect_no_failure();
}

// Two graphs of one communicator, replayed on two streams in no order: they have the same shape,
// and were mixed in silence.
TEST_P(GpuInStreamConformance, OperationsOfOneShapeThatRanksTakeForDifferentOnesAreNamed) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    InStreamCall made = in_stream_call(rank);
    made.say(0, identity_of_captured(rank));
    launch_in_stream(rank, made);
  }
  for (Rank rank = 0; rank < kRanks; ++rank) {
    expect_failure(rank, ErrorCode::FailedPrecondition, Reason::Reordered, 1 - rank);
    ASSERT_TRUE(becomes_idle(rank));
  }
  expect_untouched();
}

TEST_P(GpuInStreamConformance, OperationsThatAGraphHoldsHaveTheirIdentityOnAllRanks) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    InStreamCall made = in_stream_call(rank);
    made.say(0, identity_of_captured(1'000'000));
    launch_in_stream(rank, made);
  }
  expect_idle();
  expect_sums(0);
  expect_no_failure();
}

// Of 2^32 operations.
TEST_P(GpuInStreamConformance, NumbersComeRound) {
  constexpr std::uint32_t kBefore = ~std::uint32_t{0} - 3;
  begin_behind(kBefore);
  for (std::uint32_t number = kBefore + 1; number != 5; ++number) {
    const auto base = static_cast<float>(number % 64);
    put_all(base);
    launch_all_in_stream();
    expect_idle();
    ASSERT_NO_FATAL_FAILURE(expect_sums(base)) << number;
    for (Rank rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(__atomic_load_n(&words(rank).doorbells.in_stream_begun, __ATOMIC_ACQUIRE), number);
  }
  expect_no_failure();
}

// Each one's input is the output of the one before.
TEST_P(GpuInStreamConformance, TheyKeepOrderWithWhatIsLaunchedThereWithParityZero) {
  launch_all_in_stream();
  for (Rank rank = 0; rank < kRanks; ++rank) launch(rank, call(rank, 1, true));
  launch_all_in_stream();
  for (Rank rank = 0; rank < kRanks; ++rank) launch(rank, call(rank, 2, true));
  expect_done(2);
  expect_idle();
  for (Rank rank = 0; rank < kRanks; ++rank) {
    expect_sums(rank, 0, parts_[rank].recv, 4);
    expect_sums(rank, 0, parts_[rank].send, 8);
  }
  expect_no_failure();
}

TEST_P(GpuInStreamConformance, TheyWaitInAQueueThatIsHeld) {
  if (seat(0).queue == 0) GTEST_SKIP() << "nothing may wait for a client here";
  hold(0, 7);
  launch_all_in_stream();
  expect_busy_for_a_while(0);
  expect_busy_for_a_while(1);
  expect_untouched();
  ASSERT_TRUE(launcher(0).store(doorbell(0), 7));
  expect_idle();
  expect_sums(0);
  expect_no_failure();
}

TEST_P(GpuInStreamConformance, AMissingRankIsNamedAfterTheCallsTimeout) {
  const auto since = std::chrono::steady_clock::now();
  launch_in_stream(0, in_stream_call(0, kShort));
  expect_failure(0, ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
  EXPECT_GE(std::chrono::steady_clock::now() - since, kShort * 9 / 10);
  ASSERT_TRUE(becomes_idle(0));
  expect_untouched();
  EXPECT_EQ(failure(1), 0U);
}

TEST_P(GpuInStreamConformance, AfterAFailureARanksOperationsEndAtOnceAndTheFirstIsTold) {
  launch_in_stream(0, in_stream_call(0, kShort));
  expect_failure(0, ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
  launch_in_stream(0, in_stream_call(0));
  ASSERT_TRUE(becomes_idle(0));
  expect_failure(0, ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
  expect_untouched();
}

TEST_P(GpuInStreamConformance, RanksThatCallDifferentlyNameEachOther) {
  InStreamCall fewer = in_stream_call(1);
  fewer.count = kCount - 8;
  launch_in_stream(0, in_stream_call(0));
  launch_in_stream(1, fewer);
  for (Rank rank = 0; rank < kRanks; ++rank)
    expect_failure(rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 1 - rank);
  expect_idle();
  expect_untouched();
}

TEST_P(GpuInStreamConformance, NoElementsMeetAndTouchNothing) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    InStreamCall nothing = in_stream_call(rank);
    nothing.count = 0;
    launch_in_stream(rank, nothing);
    if (rank == 0) expect_busy_for_a_while(0);
  }
  expect_idle();
  expect_untouched();
  expect_no_failure();
}

TEST_P(GpuInStreamConformance, AClosedMailboxEndsWhatWaitsAndWhatComes) {
  launch_in_stream(0, in_stream_call(0));
  expect_busy_for_a_while(0);
  close(0);
  ASSERT_TRUE(becomes_idle(0));
  EXPECT_EQ(failure(0), to_word(kClosed));
  EXPECT_EQ(in_mailbox(0, mailbox(0)->failed), to_word(kClosed));
  close(1);
  launch_in_stream(1, in_stream_call(1));
  ASSERT_TRUE(becomes_idle(1));
  EXPECT_EQ(failure(1), to_word(kClosed));
  expect_untouched();
}

TEST_P(GpuInStreamConformance, WhatThereIsNoKernelForIsRefused) {
  const InStreamCall call = in_stream_call(0);
  for (const auto& [shape, dtype] :
       {std::pair{InStreamShape{}, DType::Float32}, {kShape, DType::Int32}}) {
    const Status refused =
        launcher(0).launch_in_stream(seat(0).queue, shape, dtype, ReduceOp::Sum, call);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument);
  }
  EXPECT_TRUE(is_idle(0));
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuInStreamConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
