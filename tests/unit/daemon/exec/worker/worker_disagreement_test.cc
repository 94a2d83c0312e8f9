// Ranks that ask for different things, late, never, or in another order.
#include "tests/unit/daemon/exec/worker/worker_faults.h"

namespace arcomm::test {
namespace {

TEST_F(WorkerFaults, MismatchNamesBothValuesOnAllRanksAndLeavesTheDataAlone) {
  auto ranks = group(3);
  ranks[0]->call(8);
  wait_for_pending(1);
  ranks[1]->call(7);
  expect_end(*ranks[0], ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
             "rank 1 and rank 0 differ: count 7 and 8");
  expect_end(*ranks[1], ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
             "rank 1 and rank 0 differ: count 7");
  ranks[2]->call(8);  // late
  expect_end(*ranks[2], ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
             "rank 1 and rank 0 differ: count 7");
  for (Client* rank : ranks) rank->call(8);
  for (Client* rank : ranks) expect_end(*rank, ErrorCode::Ok, Reason::None, kNoRank, "");
}

TEST_F(WorkerFaults, NothingOnOneRankAgainstSomethingOnAnotherIsAMismatchToo) {
  auto ranks = group(2);
  ranks[0]->call(0);
  wait_for_pending(1);
  ranks[1]->call(8);
  for (Client* rank : ranks)
    expect_end(*rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 1, "count 8 and 0");
  ranks[1]->call(8);
  wait_for_pending(1);
  ranks[0]->call(0);
  for (Client* rank : ranks)
    expect_end(*rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 0, "count 0 and 8");
}

TEST_F(WorkerFaults, MismatchOfTypeAndOperationIsSeenToo) {
  auto ranks = group(2);
  ranks[0]->call(8, DType::Float16, ReduceOp::Max);
  wait_for_pending(1);
  ranks[1]->call(8, DType::BFloat16, ReduceOp::Max);
  for (Client* rank : ranks) {
    expect_end(*rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
               "rank 1 and rank 0 differ: dtype bfloat16 and float16");
  }
  ranks[0]->call(8, DType::Int8, ReduceOp::Min);
  wait_for_pending(1);
  ranks[1]->call(8, DType::Int8, ReduceOp::Prod);
  for (Client* rank : ranks)
    expect_end(*rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
               "rank 1 and rank 0 differ: op prod and min");
}

TEST_F(WorkerFaults, DeadlineNamesTheMissingRankAndRevokesTheCommunicator) {
  auto ranks = group(3);
  for (const int r : {0, 2}) {
    ring::WorkRequest request = ranks[static_cast<std::size_t>(r)]->request(4);
    request.timeout_ns = 50'000'000;
    ranks[static_cast<std::size_t>(r)]->submit(request);
  }
  const auto before = steady_clock::now();
  expect_end(*ranks[0], ErrorCode::DeadlineExceeded, Reason::Timeout, 1,
             "rank 1 (pid 801) did not call seq 0 within");
  expect_end(*ranks[2], ErrorCode::DeadlineExceeded, Reason::Timeout, 1, "rank 1 (pid 801)");
  EXPECT_LT(steady_clock::now() - before, seconds(10));
  ranks[1]->call(4);
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::Revoked, 1,
             "revoked: rank 1 (pid 801) did not call seq 0");
  const auto snapshot = await<CommunicatorSnapshot>(
      [&](auto done) { worker_->describe(ranks[0]->id(), ranks[0]->member, done); });
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->state.rfind("revoked: rank 1", 0), 0u) << snapshot->state;
  EXPECT_EQ(snapshot->reason, Reason::Timeout);
  EXPECT_EQ(snapshot->culprit, 1);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(revoked_, std::vector<Reason>{Reason::Timeout});
  EXPECT_EQ(metrics_->communicators_revoked[Reason::Timeout].value(), 1u);
}

TEST_F(WorkerFaults, TheLargestAllowedTimeoutBoundsWhatARequestAsks) {
  Settings settings;
  settings.op.max_timeout_ms = 40;
  start(settings);
  auto ranks = group(2);
  ring::WorkRequest request = ranks[0]->request(4);
  request.timeout_ns = ~std::uint64_t{0};
  ranks[0]->submit(request);
  expect_end(*ranks[0], ErrorCode::DeadlineExceeded, Reason::Timeout, 1, "rank 1");
}

TEST_F(WorkerFaults, RanksThatWaitForEachOtherOnTwoCommunicatorsAreCalledCrossed) {
  auto ranks = group(2);
  const std::vector<MemberId> first = {ranks[0]->member, ranks[1]->member};
  const std::vector<MemberId> second = form(ranks, 2);
  const auto call = [](Client& rank, MemberId member) {
    ring::WorkRequest request = rank.request(4);
    request.member = member.bits();
    request.seq = 0;
    request.timeout_ns = 60'000'000;
    rank.submit(request);
  };
  call(*ranks[0], first[0]);
  call(*ranks[1], second[1]);
  for (Client* rank : ranks) {
    const auto completion = rank->next();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(code_of(*completion), ErrorCode::DeadlineExceeded);
    EXPECT_EQ(reason_of(*completion), Reason::Crossed);
    EXPECT_NE(std::string(completion->detail).find("01010101"), std::string::npos)
        << completion->detail;
    EXPECT_NE(std::string(completion->detail).find("02020202"), std::string::npos)
        << completion->detail;
  }
  expect_serving();
}

TEST_F(WorkerFaults, DifferentOrderOnTwoCommunicatorsIsFineWhenNobodyWaits) {
  auto ranks = group(2);
  const std::vector<MemberId> first = {ranks[0]->member, ranks[1]->member};
  const std::vector<MemberId> second = form(ranks, 2);
  const auto call = [](Client& rank, MemberId member) {
    ring::WorkRequest request = rank.request(4);
    request.member = member.bits();
    request.seq = 0;
    rank.submit(request);
  };
  call(*ranks[0], first[0]);
  call(*ranks[0], second[0]);
  call(*ranks[1], second[1]);
  call(*ranks[1], first[1]);
  for (Client* rank : ranks) {
    for (int i = 0; i < 2; ++i) expect_end(*rank, ErrorCode::Ok, Reason::None, kNoRank, "");
  }
}

TEST_F(WorkerFaults, ARequestOlderThanItsDeadlineIsNotRunAndRevokesTheCommunicator) {
  auto ranks = group(2);
  ranks[1]->call(4);
  wait_for_pending(1);
  ring::WorkRequest request = ranks[0]->request(4);
  request.timeout_ns = 1'000'000'000;
  request.submitted_ns -= 2'000'000'000;
  ranks[0]->submit(request);
  expect_end(*ranks[0], ErrorCode::DeadlineExceeded, Reason::Timeout, 0, "its timeout is 1000 ms");
  expect_end(*ranks[1], ErrorCode::DeadlineExceeded, Reason::Timeout, 0, "refused on rank 0");
  ranks[1]->call(4);
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::Revoked, 0, "revoked: refused on rank 0");
  expect_serving();
}

TEST_F(WorkerFaults, TheDeadlineCountsFromTheCallAndATimeToComeBuysNone) {
  auto ranks = group(2);
  ring::WorkRequest request = ranks[0]->request(4);
  request.timeout_ns = 60'000'000'000;
  request.submitted_ns -= 59'000'000'000;
  const auto before = steady_clock::now();
  ranks[0]->submit(request);
  expect_end(*ranks[0], ErrorCode::DeadlineExceeded, Reason::Timeout, 1, "did not call seq 0");
  EXPECT_LT(steady_clock::now() - before, seconds(30));
  auto others = group(2);
  request = others[0]->request(4);
  request.timeout_ns = 500'000'000;
  request.submitted_ns = ~std::uint64_t{0};
  others[0]->submit(request);
  expect_end(*others[0], ErrorCode::DeadlineExceeded, Reason::Timeout, 1, "did not call seq 0");
}

}  // namespace
}  // namespace arcomm::test
