// What breaks around an operation, and what everybody is told. After each fault a clean AllReduce
// works.
#include "tests/unit/daemon/worker_fixture.h"

namespace arcomm::test {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

class WorkerFaults : public WorkerTest {
 protected:
  // A clean AllReduce between fresh clients.
  void expect_serving() {
    auto ranks = group(2);
    for (Client* rank : ranks) rank->call(16);
    for (Client* rank : ranks) {
      const auto completion = rank->next();
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(code_of(*completion), ErrorCode::Ok) << completion->detail;
    }
  }
  void wait_for_pending(std::uint64_t operations) {
    while (inspect().operations_pending < operations) std::this_thread::yield();
  }
  void expect_end(Client& rank, ErrorCode code, Reason reason, Rank culprit,
                  const std::string& part) {
    const auto completion = rank.next();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(name_of(code_of(*completion)), name_of(code)) << completion->detail;
    EXPECT_EQ(name_of(reason_of(*completion)), name_of(reason)) << completion->detail;
    EXPECT_EQ(completion->culprit_rank, culprit) << completion->detail;
    EXPECT_NE(std::string(completion->detail).find(part), std::string::npos) << completion->detail;
  }
  // Submitted by rank 0 of two; the other rank hears of the refusal when it calls.
  void expect_refused(Client& bad, Client& other, const ring::WorkRequest& request, ErrorCode code,
                      Reason reason, const std::string& part) {
    other.call(4);
    wait_for_pending(1);
    bad.submit(request);
    expect_end(bad, code, reason, 0, part);
    expect_end(other, ErrorCode::FailedPrecondition, reason, 0, "refused on rank 0");
    other.call(4);  // the communicator goes on
    bad.call(4);
    expect_end(bad, ErrorCode::Ok, Reason::None, kNoRank, "");
    expect_end(other, ErrorCode::Ok, Reason::None, kNoRank, "");
  }
};

TEST_F(WorkerFaults, MismatchNamesBothValuesOnAllRanksAndLeavesTheDataAlone) {
  auto ranks = group(3);
  ranks[0]->call(8);
  wait_for_pending(1);
  ranks[1]->call(7);
  expect_end(*ranks[0], ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
             "rank 1 asked sum of 7 float32, rank 0 sum of 8 float32");
  expect_end(*ranks[1], ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
             "rank 1 asked sum of 7");
  ranks[2]->call(8);  // late
  expect_end(*ranks[2], ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
             "rank 1 asked sum of 7");
  for (Client* rank : ranks) rank->call(8);
  for (Client* rank : ranks) expect_end(*rank, ErrorCode::Ok, Reason::None, kNoRank, "");
}

TEST_F(WorkerFaults, MismatchOfTypeAndOperationIsSeenToo) {
  auto ranks = group(2);
  ranks[0]->call(8, DType::Float16, ReduceOp::Max);
  wait_for_pending(1);
  ranks[1]->call(8, DType::BFloat16, ReduceOp::Max);
  for (Client* rank : ranks) {
    expect_end(*rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 1,
               "max of 8 bfloat16, rank 0 max of 8 float16");
  }
  ranks[0]->call(8, DType::Int8, ReduceOp::Min);
  wait_for_pending(1);
  ranks[1]->call(8, DType::Int8, ReduceOp::Prod);
  for (Client* rank : ranks)
    expect_end(*rank, ErrorCode::FailedPrecondition, Reason::Mismatch, 1, "prod of 8 int8");
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

TEST_F(WorkerFaults, ADeadSessionEndsItsPeersOperationsAtOnceAndNamesItsRank) {
  auto ranks = group(3);
  ranks[0]->call(4);
  ranks[1]->call(4);
  wait_for_pending(2);
  const auto before = steady_clock::now();
  ASSERT_TRUE(close(*ranks[2], Reason::RemoteDied).ok());
  EXPECT_LT(steady_clock::now() - before, seconds(5));
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::RemoteDied, 2,
             "rank 2 (pid 802) is gone: killed");
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 2, "rank 2 (pid 802)");
  ranks[0]->call(4);
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::Revoked, 2, "revoked: rank 2");
  EXPECT_EQ(ranks[2]->state(), ring::SessionState::Closed);
  expect_serving();
}

TEST_F(WorkerFaults, ADeathInTheMiddleOfALargeOperationNeverReportsAHalfWrittenResult) {
  constexpr std::size_t kBytes = 64 << 20;
  for (int round = 0; round < 3; ++round) {
    auto ranks = group(2, kBytes);
    for (Client* rank : ranks) rank->call(kBytes / 4);
    wait_for_pending(2);
    ASSERT_TRUE(close(*ranks[1], Reason::RemoteDied).ok());
    const auto completion = ranks[0]->next();
    ASSERT_TRUE(completion.has_value());
    if (code_of(*completion) == ErrorCode::Ok) continue;  // it was complete before the death
    EXPECT_EQ(code_of(*completion), ErrorCode::Aborted);
    EXPECT_EQ(reason_of(*completion), Reason::RemoteDied);
    EXPECT_EQ(completion->culprit_rank, 1);
  }
  expect_serving();
}

TEST_F(WorkerFaults, AnAbortEndsTheOperationsOfAllRanks) {
  auto ranks = group(2);
  ranks[0]->call(4);
  wait_for_pending(1);
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->abort_communicator(ranks[1]->id(), ranks[1]->member, "user asked", done);
              }).ok());
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::RemoteAborted, 1,
             "rank 1 aborted the communicator: user asked");
  ranks[1]->call(4);  // its own handle is spent
  expect_end(*ranks[1], ErrorCode::NotFound, Reason::UnknownHandle, kNoRank, "is unknown");
}

TEST_F(WorkerFaults, ARankThatLeavesLetsFinishWhatAllHadCalled) {
  auto ranks = group(2);
  for (Client* rank : ranks) rank->call(4);
  ranks[0]->call(4);  // rank 1 will not call this one
  while (inspect().operations_pending > 1) std::this_thread::yield();
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->leave_communicator(ranks[1]->id(), ranks[1]->member, done);
              }).ok());
  expect_end(*ranks[0], ErrorCode::Ok, Reason::None, kNoRank, "");
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::RemoteAborted, 1,
             "rank 1 left the communicator before seq 1");
  ranks[0]->call(4);
  expect_end(*ranks[0], ErrorCode::Aborted, Reason::RemoteAborted, 1, "rank 1 left");
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done);
              }).ok());
  EXPECT_TRUE(inspect().communicators.empty());
}

TEST_F(WorkerFaults, ARangePastTheEndOfItsBufferIsRefusedForThatOperationOnly) {
  auto ranks = group(2);
  ring::WorkRequest request = ranks[0]->request(4);
  request.recv_offset_bytes = 8192 - 12;
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::OutOfBounds,
                 "leaves its buffer");
  EXPECT_EQ(metrics_->rejected[Reason::OutOfBounds].value(), 1u);
}

TEST_F(WorkerFaults, ARangeThatWrapsAroundTheAddressSpaceIsRefused) {
  auto ranks = group(2);
  ring::WorkRequest request = ranks[0]->request(4);
  request.send_offset_bytes = ~std::uint64_t{0} - 3;
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::OutOfBounds,
                 "leaves its buffer");
  request = ranks[0]->request(std::uint64_t{1} << 61);
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::OutOfBounds,
                 "leaves its buffer");
}

TEST_F(WorkerFaults, OverlapAndMisalignmentAreRefused) {
  auto ranks = group(2);
  ring::WorkRequest request = ranks[0]->request(4);
  request.recv_offset_bytes = 8;
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::BadValue,
                 "overlap");
  request = ranks[0]->request(4);
  request.send_offset_bytes = 2;
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::BadValue,
                 "multiple");
}

TEST_F(WorkerFaults, StaleForeignAndUnknownIdsAreRefused) {
  auto ranks = group(2);
  const BufferId old = ranks[0]->buffer;
  ranks[0]->memory(8192);
  ASSERT_TRUE(
      await<void>([&](auto done) { worker_->remove_buffer(ranks[0]->id(), old, done); }).ok());
  ring::WorkRequest request = ranks[0]->request(4);
  request.send_buffer = old.bits();
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::NotFound, Reason::UnknownHandle,
                 "send buffer");
  request = ranks[0]->request(4);
  request.recv_buffer = ranks[1]->buffer.bits();
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::NotFound, Reason::UnknownHandle,
                 "recv buffer");
  request = ranks[0]->request(4);
  request.member = ranks[1]->member.bits();  // another session's rank: spends no seq of anybody
  ranks[0]->submit(request);
  --ranks[0]->seq;
  expect_end(*ranks[0], ErrorCode::NotFound, Reason::UnknownHandle, kNoRank, "communicator");
  request = ranks[0]->request(4);
  request.dtype = 77;
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::BadValue,
                 "dtype");
}

TEST_F(WorkerFaults, AFloodOfRefusedRequestsEndsTheCommunicatorInsteadOfPilingUp) {
  auto ranks = group(2);
  for (int i = 0; i < 300; ++i) {
    ring::WorkRequest request = ranks[0]->request(4);
    request.send_offset_bytes = 1 << 30;
    ranks[0]->submit(request);
    ASSERT_TRUE(ranks[0]->next().has_value());
  }
  ranks[1]->call(4);
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::Revoked, kNoRank,
             "operations failed while a rank did not call");
}

TEST_F(WorkerFaults, ARankThatSkipsASeqEndsTheCommunicatorInsteadOfHangingIt) {
  auto ranks = group(2);
  ranks[1]->call(4);
  wait_for_pending(1);
  ring::WorkRequest request = ranks[0]->request(4);
  request.seq = 5;
  ranks[0]->submit(request);
  expect_end(*ranks[0], ErrorCode::InvalidArgument, Reason::BadValue, 0,
             "called seq 5 where 0 comes next");
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::BadValue, 0, "refused on rank 0");
}

TEST_F(WorkerFaults, ARequestWithoutItsMagicQuarantinesTheSession) {
  auto ranks = group(2);
  ranks[1]->call(4);
  wait_for_pending(1);
  ring::WorkRequest request = ranks[0]->request(4);
  request.magic = 0;
  ranks[0]->submit(request);
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::Quarantined, 0, "rank 0");
  EXPECT_EQ(ranks[0]->state(), ring::SessionState::Quarantined);
  {
    const std::lock_guard lock(mutex_);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0], std::pair(ranks[0]->id(), Reason::Quarantined));
  }
  EXPECT_TRUE(close(*ranks[0], Reason::Quarantined).ok());
  expect_serving();
}

TEST_F(WorkerFaults, IndicesThatJumpQuarantineTheSession) {
  for (const std::uint64_t tail : {std::uint64_t{1000}, ~std::uint64_t{0}}) {
    auto ranks = group(2);
    ranks[1]->call(4);
    wait_for_pending(1);
    ranks[0]->control().requests.tail.store(tail);
    ranks[0]->ring_bell();
    expect_end(*ranks[1], ErrorCode::Aborted, Reason::Quarantined, 0, "rank 0");
  }
  auto ranks = group(2);
  for (Client* rank : ranks) rank->call(4);
  for (Client* rank : ranks) expect_end(*rank, ErrorCode::Ok, Reason::None, kNoRank, "");
  ranks[1]->call(4);
  ranks[0]->control().completions.head.store(77);  // it never had so many
  ranks[0]->call(4);
  for (int i = 0; i < 400 && ranks[0]->state() != ring::SessionState::Quarantined; ++i) {
    // Its ring is looked at again when it seems full: keep going until then.
    ranks[0]->call(4);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(ranks[0]->state(), ring::SessionState::Quarantined);
  expect_serving();
}

TEST_F(WorkerFaults, ASlotThatDoesNotCarryItsPositionQuarantinesTheSession) {
  auto ranks = group(2);
  ranks[1]->call(4);
  wait_for_pending(1);
  const auto view = ranks[0]->request_view();
  view.slots[0] = ranks[0]->request(4);
  view.slots[0].slot_seq = 99;
  view.indices->tail.store(1, std::memory_order_release);
  ranks[0]->ring_bell();
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::Quarantined, 0, "rank 0");
  expect_serving();
}

TEST_F(WorkerFaults, ASlowReaderHoldsUpItselfAlone) {
  auto slow = group(1, 4096, 8);
  auto quick = group(2);
  for (int i = 0; i < 8; ++i) slow[0]->call(4);
  for (int i = 0; i < 8; ++i)
    slow[0]->call(4);  // its ring of requests is full again: nothing more is read
  EXPECT_LE(inspect().sessions[0].submitted, 8u);
  for (int i = 0; i < 50; ++i) {
    for (Client* rank : quick) rank->call(4);
    for (Client* rank : quick) expect_end(*rank, ErrorCode::Ok, Reason::None, kNoRank, "");
  }
  EXPECT_LE(inspect().sessions[0].submitted, 8u);
  for (int i = 0; i < 16; ++i) expect_end(*slow[0], ErrorCode::Ok, Reason::None, kNoRank, "");
  EXPECT_EQ(inspect().sessions[0].completed, 16u);
}

TEST_F(WorkerFaults, TheQuotaOfOperationsInFlightRefusesTheNext) {
  Client& zero = client(64, {.max_in_flight = 4});
  Client& one = client(64, {.max_in_flight = 4});
  for (Client* rank : {&zero, &one}) {
    rank->memory(8192);
    rank->recv_offset = 4096;
  }
  form({&zero, &one});
  for (int i = 0; i < 5; ++i) zero.call(4);
  expect_end(zero, ErrorCode::ResourceExhausted, Reason::Quota, 0, "4 operations are in flight");
  for (int i = 0; i < 4; ++i) one.call(4);
  for (int i = 0; i < 4; ++i) {
    expect_end(zero, ErrorCode::Ok, Reason::None, kNoRank, "");
    expect_end(one, ErrorCode::Ok, Reason::None, kNoRank, "");
  }
  one.call(4);
  expect_end(one, ErrorCode::FailedPrecondition, Reason::Quota, 0, "refused on rank 0");
}

TEST_F(WorkerFaults, AUserCannotPassTheQuotaOfOperationsWithASecondSession) {
  auto settings = std::make_shared<Settings>(*settings_);
  settings->quota.in_flight = 6;
  worker_->use_settings(settings);
  auto first = group(2);
  std::vector<Client*> second{&client(), &client()};
  for (Client* rank : second) {
    rank->memory(8192);
    rank->recv_offset = 4096;
  }
  form(second, 2);
  for (int i = 0; i < 4; ++i) first[0]->call(4);
  wait_for_pending(4);
  for (int i = 0; i < 3; ++i) second[0]->call(4);
  expect_end(*second[0], ErrorCode::ResourceExhausted, Reason::Quota, 0,
             "6 operations of user 1000 are in flight: quota.in_flight is 6");
  worker_->use_settings(settings_);  // a reload reaches sessions that are open
  for (int i = 0; i < 4; ++i) first[1]->call(4);
  for (int i = 0; i < 4; ++i) {
    expect_end(*first[0], ErrorCode::Ok, Reason::None, kNoRank, "");
    expect_end(*first[1], ErrorCode::Ok, Reason::None, kNoRank, "");
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

TEST_F(WorkerFaults, ASessionThatLeftWhileItWaitedAndThenDiesKeepsNobody) {
  auto ranks = group(2);
  ranks[0]->call(4);
  wait_for_pending(1);
  ASSERT_TRUE(await<void>([&](auto done) {
                worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done);
              }).ok());
  const auto before = steady_clock::now();
  ASSERT_TRUE(close(*ranks[0], Reason::RemoteDied).ok());
  EXPECT_LT(steady_clock::now() - before, seconds(10));  // its deadline is 30 s away
  ranks[1]->call(4);
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::Revoked, 0, "rank 0 (pid 800) is gone: killed");
  expect_serving();
}

TEST_F(WorkerFaults, NothingWritesAfterAnAbortOrALeaveWasAnswered) {
  constexpr std::size_t kBytes = 64 << 20;
  for (const bool aborts : {true, false}) {
    Client* ranks[] = {&client(), &client()};
    SharedBytes* memory[] = {&ranks[0]->memory(2 * kBytes), &ranks[1]->memory(2 * kBytes)};
    for (Client* rank : ranks) rank->recv_offset = kBytes;
    form({ranks[0], ranks[1]}, aborts ? 1 : 2);
    for (SharedBytes* bytes : memory) std::memset(bytes->data, 0, bytes->bytes);
    for (std::size_t i = 0; i < kBytes / 4; ++i) memory[0]->as<float>()[i] = 1.0f;
    for (Client* rank : ranks) rank->call(kBytes / 4);
    wait_for_pending(2);
    ASSERT_TRUE(await<void>([&](auto done) {
                  if (aborts) {
                    worker_->abort_communicator(ranks[0]->id(), ranks[0]->member, "", done);
                  } else {
                    worker_->leave_communicator(ranks[0]->id(), ranks[0]->member, done);
                  }
                }).ok());
    std::memset(memory[0]->data + kBytes, 0x7f, kBytes);
    ASSERT_TRUE(ranks[0]->next().has_value());
    ASSERT_TRUE(ranks[1]->next().has_value());
    std::size_t overwritten = 0;
    for (std::size_t i = kBytes; i < 2 * kBytes; ++i)
      overwritten += memory[0]->data[i] != std::byte{0x7f} ? 1 : 0;
    EXPECT_EQ(overwritten, 0u) << (aborts ? "abort" : "leave");
  }
  expect_serving();
}

TEST_F(WorkerFaults, ABufferInUseCannotBeRemoved) {
  auto ranks = group(2);
  ranks[0]->call(4);
  wait_for_pending(1);
  const auto remove = [&] {
    return await<void>(
        [&](auto done) { worker_->remove_buffer(ranks[0]->id(), ranks[0]->buffer, done); });
  };
  const Result<void> refused = remove();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition);
  ranks[1]->call(4);
  expect_end(*ranks[0], ErrorCode::Ok, Reason::None, kNoRank, "");
  EXPECT_TRUE(remove().ok());
  EXPECT_EQ(remove().error().code, ErrorCode::NotFound);
}

}  // namespace
}  // namespace arcomm::test
