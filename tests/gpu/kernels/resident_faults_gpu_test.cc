// What the resident grid does when a rank does not come, asks for something else, lies, or is
// aborted.
#include <thread>

#include "tests/gpu/kernels/resident_fixture.h"

namespace arcomm::gpu {
namespace {

class ResidentFaults : public ResidentGrids {};

TEST_P(ResidentFaults, ARankThatDoesNotComeIsNamed) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
  cudaSetDevice(0);
  ASSERT_EQ(post(mailbox(*main_, 0), 1, 1, (*node_)[0].stream->handle()), cudaSuccess);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(node_->synchronize(5s));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, std::chrono::nanoseconds(kTimeoutNs) + 100ms);
  const ResidentStatus told = status(*main_, 0);
  EXPECT_EQ(told.failed.code, static_cast<unsigned>(ErrorCode::DeadlineExceeded));
  EXPECT_EQ(told.failed.reason, static_cast<unsigned>(Reason::Timeout));
  EXPECT_EQ(told.failed.culprit_rank, 1);
  EXPECT_EQ(read_mailbox(*main_, 0).closed, to_word(told.failed));
}

TEST_P(ResidentFaults, RanksThatAskForDifferentThingsAreToldSo) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, rank == 1 ? 30'000 : 1000, DType::Float32, ReduceOp::Sum));
  post_all(*main_, 1);
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank) {
    const Done failed = status(*main_, rank).failed;
    EXPECT_EQ(failed.reason, static_cast<unsigned>(Reason::Mismatch)) << rank;
    if (rank != 1) {
      EXPECT_EQ(failed.culprit_rank, 1) << rank;
    }
  }
}

TEST_P(ResidentFaults, NothingAgainstSomethingIsToldToBothAndNothingOnAllIsNone) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank) {
    set_plan(*main_, rank, 1, plan(rank, 0, DType::Float32, ReduceOp::Sum));
    set_plan(*main_, rank, 2, plan(rank, rank == 1 ? 0 : 1000, DType::Float32, ReduceOp::Sum));
  }
  post_all(*main_, 1, 3);
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank) EXPECT_EQ(status(*main_, rank).failed.code, 0) << rank;
  post_all(*main_, 2);
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank)
    EXPECT_EQ(status(*main_, rank).failed.reason, static_cast<unsigned>(Reason::Mismatch)) << rank;
}

TEST_P(ResidentFaults, AnAbortEndsAWaitInLessThanAMillisecond) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
  cudaSetDevice(0);
  ASSERT_EQ(post(mailbox(*main_, 0), 1, 1, (*node_)[0].stream->handle()), cudaSuccess);
  std::this_thread::sleep_for(20ms);
  const Done why{.number = 1,
                 .code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                 .reason = static_cast<std::uint8_t>(Reason::RemoteDied),
                 .culprit_rank = 1};
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(grids_[0]->abort_member(main_->slots[0], why));
  while (status(*main_, 0).failed.code == 0 &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) {
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, 1ms);
  std::printf("abort seen after %.0f us\n",
              std::chrono::duration<double, std::micro>(took).count());
  ASSERT_TRUE(node_->synchronize(5s));
  EXPECT_EQ(to_word(status(*main_, 0).failed), to_word(why));
}

TEST_P(ResidentFaults, DoorbellsThatLieEndTheirOwnMemberAlone) {
  Group& liar = make_group();
  resume();
  for (int rank = 0; rank < ranks(); ++rank) {
    set_plan(*main_, rank, 1, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
    set_plan(liar, rank, 2, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
  }
  cudaSetDevice(0);
  auto* side = (*node_)[0].side->handle();
  ASSERT_EQ(ring(mailbox(liar, 0), {.number = 7, .plan = 2}, side), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(side), cudaSuccess);
  post_all(*main_, 1, 100);
  ASSERT_TRUE(node_->synchronize(5s));
  EXPECT_EQ(status(liar, 0).failed.reason, static_cast<unsigned>(Reason::Quarantined));
  // A plan of another member, and one that is none.
  cudaSetDevice(1);
  ASSERT_EQ(ring(mailbox(liar, 1), {.number = 1, .plan = 1}, (*node_)[1].side->handle()),
            cudaSuccess);
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(status(liar, 1).failed.reason, static_cast<unsigned>(Reason::UnknownHandle));
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(status(*main_, rank).done, 100U);
    EXPECT_EQ(status(*main_, rank).failed.code, 0);
  }
}

// Its session may live on and keep it; the slot's next member must not start it.
TEST_P(ResidentFaults, APlanOfASlotsFormerMemberIsNoPlan) {
  Group& former = make_group();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(former, rank, 9, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    ASSERT_TRUE(grids_[at]->remove_member(former.slots[at]));
  }
  Group& next = make_group();
  ASSERT_EQ(next.slots, former.slots);
  resume();
  post_all(next, 9);
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank)
    EXPECT_EQ(status(next, rank).failed.reason, static_cast<unsigned>(Reason::UnknownHandle));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ResidentFaults, testing::Values(2, 4),
                         [](const auto& one) { return std::to_string(one.param) + "Gpus"; });

}  // namespace
}  // namespace arcomm::gpu
