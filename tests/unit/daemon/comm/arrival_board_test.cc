#include "daemon/comm/arrival_board.h"

#include <gtest/gtest.h>

#include <deque>

namespace arcomm {
namespace {

class ArrivalBoardTest : public ::testing::Test {
 protected:
  Operation& operation(Rank rank, std::uint64_t seq, std::uint64_t count = 8) {
    Operation& made = operations_.emplace_back();
    made.rank = rank;
    made.seat = static_cast<std::uint32_t>(rank);
    made.seq = seq;
    made.signature = Signature::whole(all_reduce_of(count));
    made.admitted_ns = 100;
    made.deadline_ns = 1000 + static_cast<std::uint64_t>(rank);
    return made;
  }
  int ended() {
    int count = 0;
    while (finished_.pop() != nullptr) ++count;
    return count;
  }

  std::deque<Operation> operations_;
  ArrivalPool pool_{4};
  ArrivalBoard board_{pool_, 3};
  OperationList finished_;
};

TEST_F(ArrivalBoardTest, MatchesWhenTheLastRankComes) {
  board_.arrive(operation(2, 0), finished_);
  board_.arrive(operation(0, 0), finished_);
  EXPECT_EQ(board_.head()->state, Arrival::State::Gathering);
  EXPECT_EQ(board_.head()->deadline_ns, 1000u);  // the earliest
  board_.arrive(operation(1, 0), finished_);
  EXPECT_EQ(board_.head()->state, Arrival::State::Matched);
  board_.head()->state = Arrival::State::Running;
  board_.complete_head(Failure{}, finished_);
  EXPECT_EQ(ended(), 3);
  EXPECT_EQ(board_.head(), nullptr);
  EXPECT_EQ(board_.base(), 1u);
  EXPECT_EQ(pool_.taken(), 0u);
}

// Two graphs of one communicator, replayed on two streams in no order.
TEST_F(ArrivalBoardTest, RanksThatRunDifferentOnesOfWhatTheirGraphsHoldAreTold) {
  Operation &first = operation(0, 0), &second = operation(1, 0);
  first.identity = identity_of_captured(2);
  second.identity = identity_of_captured(4);
  board_.arrive(first, finished_);
  board_.arrive(second, finished_);
  EXPECT_EQ(ended(), 2);
  EXPECT_EQ(first.outcome.code, ErrorCode::FailedPrecondition);
  EXPECT_EQ(first.outcome.reason, Reason::Reordered);
  EXPECT_EQ(first.outcome.culprit, 1);
  EXPECT_STREQ(second.outcome.text.data(),
               "rank 1 runs what it captured as number 5, rank 0 what it captured as number 3");
  Operation& late = operation(2, 0);
  board_.arrive(late, finished_);
  EXPECT_EQ(late.outcome.reason, Reason::Reordered);
}

TEST_F(ArrivalBoardTest, ACallMeetsNothingThatAGraphHolds) {
  Operation& called = operation(2, 0);
  board_.arrive(called, finished_);
  Operation& replayed = operation(1, 0);
  replayed.identity = identity_of_captured(0);
  board_.arrive(replayed, finished_);
  EXPECT_STREQ(called.outcome.text.data(),
               "rank 1 runs what it captured as number 1, rank 2 what no graph holds");
}

TEST_F(ArrivalBoardTest, WhatAllRanksCapturedAlikeMatches) {
  for (const Rank rank : {0, 1, 2}) {
    Operation& made = operation(rank, 0);
    made.identity = identity_of_captured(7);
    board_.arrive(made, finished_);
  }
  EXPECT_EQ(board_.head()->state, Arrival::State::Matched);
}

TEST_F(ArrivalBoardTest, AMatchedOneIsToldOnceAndRunsWhenTheNodesHaveAgreed) {
  EXPECT_EQ(board_.arrive(operation(0, 0), finished_), nullptr);
  EXPECT_EQ(board_.arrive(operation(1, 0), finished_), nullptr);
  board_.agree(*board_.head());
  EXPECT_EQ(board_.head()->state, Arrival::State::Gathering) << "a seat has not called";
  Arrival* matched = board_.arrive(operation(2, 0), finished_);
  ASSERT_EQ(matched, board_.head());
  board_.agree(*matched);
  EXPECT_EQ(matched->state, Arrival::State::Agreed);
  board_.run_head();
  EXPECT_EQ(matched->state, Arrival::State::Running);
  board_.agree(*matched);  // told twice
  EXPECT_EQ(matched->state, Arrival::State::Running);
}

TEST_F(ArrivalBoardTest, ASuccessOfAllPartsEndsWithTheLastOne) {
  for (const Rank rank : {0, 1, 2}) board_.arrive(operation(rank, 0), finished_);
  board_.run_head();
  board_.open_parts(3);
  EXPECT_FALSE(board_.end_part({}));
  EXPECT_FALSE(board_.end_part({}));
  const std::optional<Failure> came_to = board_.end_part({});
  ASSERT_TRUE(came_to);
  EXPECT_TRUE(came_to->ok());
}

TEST_F(ArrivalBoardTest, TheFirstFailureOfAPartIsTheOperationsAndTheOthersAreToldToStop) {
  for (const Rank rank : {0, 1, 2}) board_.arrive(operation(rank, 0), finished_);
  board_.run_head();
  board_.open_parts(3);
  EXPECT_FALSE(
      board_.end_part(make_failure(ErrorCode::Unavailable, Reason::RemoteDied, 2, "rail")));
  EXPECT_EQ(board_.head()->failure.message(), "rail");
  EXPECT_FALSE(board_.end_part(make_failure(ErrorCode::Aborted, Reason::Revoked, 1, "later")));
  const std::optional<Failure> came_to = board_.end_part({});
  ASSERT_TRUE(came_to);
  board_.complete_head(*came_to, finished_);
  for (const Operation& one : operations_) {
    EXPECT_EQ(one.outcome.message(), "rail");
    EXPECT_EQ(one.outcome.culprit, 2);
  }
  EXPECT_EQ(ended(), 3);
}

TEST_F(ArrivalBoardTest, APartThatEndedWellAfterTheStopLeavesASuccessOne) {
  for (const Rank rank : {0, 1, 2}) board_.arrive(operation(rank, 0), finished_);
  board_.run_head();
  board_.head()->failure = make_failure(ErrorCode::Aborted, Reason::RemoteDied, 1, "revoked");
  const std::optional<Failure> came_to = board_.end_part({});
  ASSERT_TRUE(came_to);
  EXPECT_TRUE(came_to->ok()) << "all of it had been done";
}

TEST_F(ArrivalBoardTest, RanksMayRunAheadBeyondTheFirstWindow) {
  for (std::uint64_t seq = 0; seq < 100; ++seq) board_.arrive(operation(0, seq), finished_);
  for (std::uint64_t seq = 0; seq < 100; ++seq) board_.arrive(operation(1, seq), finished_);
  EXPECT_EQ(board_.size(), 100u);
  for (std::uint64_t seq = 0; seq < 100; ++seq) {
    board_.arrive(operation(2, seq), finished_);
    ASSERT_EQ(board_.head()->seq, seq);
    ASSERT_EQ(board_.head()->state, Arrival::State::Matched);
    board_.complete_head(Failure{}, finished_);
  }
  EXPECT_EQ(ended(), 300);
  EXPECT_EQ(pool_.taken(), 0u);
}

TEST_F(ArrivalBoardTest, AMismatchEndsThoseWhoCameAndWaitsForTheLate) {
  board_.arrive(operation(0, 0, 8), finished_);
  board_.arrive(operation(1, 0, 9), finished_);
  EXPECT_EQ(ended(), 2);
  EXPECT_NE(board_.head(), nullptr);
  Operation& late = operation(2, 0, 8);
  board_.arrive(late, finished_);
  EXPECT_EQ(late.outcome.reason, Reason::Mismatch);
  EXPECT_EQ(ended(), 1);
  EXPECT_EQ(board_.head(), nullptr);
}

TEST_F(ArrivalBoardTest, AMismatchOfLargeOperationsShowsTheWholesNotTheParts) {
  Operation& first = operation(0, 0, 64);
  first.signature.total_count = 256;
  Operation& second = operation(1, 0, 64);
  second.signature.total_count = 128;
  board_.arrive(first, finished_);
  board_.arrive(second, finished_);
  EXPECT_EQ(ended(), 2);
  EXPECT_EQ(first.outcome.message(), "rank 1 and rank 0 differ: count 128 and 256");
}

TEST_F(ArrivalBoardTest, AMismatchNamesAllThatDiffersWithBothValues) {
  struct Case {
    OperationSpec late, first;
    const char* text;
  };
  constexpr auto kOtherCollective = static_cast<Collective>(9);
  constexpr auto kOtherCodec = static_cast<Codec>(9);
  const Case cases[] = {
      {all_reduce_of(0), all_reduce_of(8), "count 0 and 8"},
      {all_reduce_of(8, DType::Int32), all_reduce_of(8), "dtype int32 and float32"},
      {all_reduce_of(7, DType::Int32, ReduceOp::Max), all_reduce_of(8),
       "count 7 and 8, dtype int32 and float32, op max and sum"},
      {{.send_count = 8, .recv_count = 16, .collective = kOtherCollective},
       all_reduce_of(8),
       "collective unknown collective and all_reduce, recv count 16 and 8"},
      {{.send_count = 4, .recv_count = 16, .collective = kOtherCollective},
       {.send_count = 8, .recv_count = 32, .collective = kOtherCollective},
       "send count 4 and 8, recv count 16 and 32"},
      {{.send_count = 8, .recv_count = 8, .codec = kOtherCodec, .root = 2},
       {.send_count = 8, .recv_count = 8, .root = 1},
       "codec unknown codec and none, root 2 and 1"},
  };
  std::uint64_t seq = 0;
  for (const Case& one : cases) {
    Operation& first = operation(0, seq);
    Operation& late = operation(1, seq++);
    first.signature = Signature::whole(one.first);
    late.signature = Signature::whole(one.late);
    board_.arrive(first, finished_);
    board_.arrive(late, finished_);
    EXPECT_EQ(late.outcome.reason, Reason::Mismatch);
    EXPECT_EQ(first.outcome.message(), std::string("rank 1 and rank 0 differ: ") + one.text);
  }
}

TEST_F(ArrivalBoardTest, PartsOfOneWholeThatBeginElsewhereDoNotMatch) {
  Operation& first = operation(0, 0, 64);
  Operation& second = operation(1, 0, 64);
  first.signature.total_count = second.signature.total_count = 256;
  second.signature.first_element = 64;
  board_.arrive(first, finished_);
  board_.arrive(second, finished_);
  EXPECT_EQ(ended(), 2);
  EXPECT_EQ(second.outcome.reason, Reason::Mismatch);
  EXPECT_EQ(second.outcome.message(),
            "cut differently: rank 1 sent 64 at 64, rank 0 64 at 0, of 256");
}

TEST_F(ArrivalBoardTest, ARefusedRankEndsTheSeqForAllAndFreesIt) {
  board_.arrive(operation(0, 0), finished_);
  const Failure told =
      make_failure(ErrorCode::FailedPrecondition, Reason::OutOfBounds, 1, "refused");
  board_.refuse(1, 0, told, 50, finished_);
  EXPECT_EQ(ended(), 1);
  board_.refuse(2, 0, told, 60, finished_);
  EXPECT_EQ(ended(), 0);
  EXPECT_EQ(board_.base(), 1u);
  EXPECT_EQ(pool_.taken(), 0u);
}

TEST_F(ArrivalBoardTest, AFailureBehindAnOpenHeadWaitsItsTurn) {
  board_.arrive(operation(0, 0), finished_);
  board_.arrive(operation(0, 1, 8), finished_);
  board_.arrive(operation(1, 0), finished_);
  board_.arrive(operation(1, 1, 9), finished_);
  EXPECT_EQ(ended(), 2);
  EXPECT_EQ(board_.head()->seq, 0u);
  board_.arrive(operation(2, 0), finished_);
  board_.complete_head(Failure{}, finished_);
  EXPECT_EQ(ended(), 3);
  board_.arrive(operation(2, 1), finished_);
  EXPECT_EQ(ended(), 1);
  EXPECT_EQ(board_.base(), 2u);
}

TEST_F(ArrivalBoardTest, ClearKeepsARunningHeadUntilItIsCompleted) {
  for (const Rank rank : {0, 1, 2}) board_.arrive(operation(rank, 0), finished_);
  board_.head()->state = Arrival::State::Running;
  board_.arrive(operation(0, 1), finished_);
  board_.clear(make_failure(ErrorCode::Aborted, Reason::RemoteDied, 1, "gone"), finished_);
  EXPECT_EQ(ended(), 1);
  ASSERT_NE(board_.head(), nullptr);
  board_.complete_head(Failure{}, finished_);
  EXPECT_EQ(ended(), 3);
  EXPECT_EQ(pool_.taken(), 0u);
}

}  // namespace
}  // namespace arcomm
