// Requests that lie about memory, name what they may not, or are too many: refused one by one.
#include "tests/unit/daemon/exec/worker/worker_faults.h"

namespace arcomm::test {
namespace {

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

// Of a client that asks without the library, which would have said so itself.
TEST_F(WorkerFaults, WhatACodecDoesNotServeIsRefusedByName) {
  auto ranks = group(2);
  ring::WorkRequest request = ranks[0]->request(4, DType::Int32);
  request.codec = static_cast<std::uint8_t>(Codec::Q8);
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::Unsupported,
                 "codec q8 does not serve sum of int32, only sum and avg of 16- and 32-bit floats");
  request = ranks[0]->request(4, DType::Float16, ReduceOp::Max);
  request.codec = static_cast<std::uint8_t>(Codec::Q4Rotated);
  expect_refused(
      *ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::Unsupported,
      "codec q4_rotated does not serve max of float16, only sum and avg of 16- and 32-bit");
  request = ranks[0]->request(4);
  request.codec = kCodecs;
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::BadValue,
                 "the codec is unknown");
  request = ranks[0]->request(4);
  request.codec = static_cast<std::uint8_t>(Codec::Fp8);
  request.total_count = 100;
  request.first_element = 40;
  expect_refused(*ranks[0], *ranks[1], request, ErrorCode::InvalidArgument, Reason::BadValue,
                 "codec fp8: the part begins within a block of 32 elements");
  const PlanSpec plan{
      .member = ranks[0]->member,
      .send_buffer = ranks[0]->buffer,
      .recv_buffer = ranks[0]->buffer,
      .spec = {.send_count = 4, .recv_count = 4, .dtype = DType::Float64, .codec = Codec::Q6}};
  const Result<PlanId> planned =
      await<PlanId>([&](auto done) { worker_->add_plan(ranks[0]->id(), plan, done); });
  ASSERT_FALSE(planned.ok());
  EXPECT_NE(planned.error().message.find("codec q6 does not serve sum of float64"),
            std::string::npos);
  EXPECT_EQ(metrics_->coded.total(), 0u);
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
  inspect();  // answered after the reload: rings are read in between, under the quota of before
  for (int i = 0; i < 4; ++i) first[1]->call(4);
  for (int i = 0; i < 4; ++i) {
    expect_end(*first[0], ErrorCode::Ok, Reason::None, kNoRank, "");
    expect_end(*first[1], ErrorCode::Ok, Reason::None, kNoRank, "");
  }
}

}  // namespace
}  // namespace arcomm::test
