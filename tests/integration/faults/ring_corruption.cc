// Rings whose indices or slots are broken by their own client: the session is quarantined, told so,
// and nobody else notices. Fault matrix 13 and 14.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class RingCorruption : public NodeTest {
 protected:
  // Attaches a liar, lets a well-behaved pair work through it, and expects quarantine.
  void expect_quarantine(
      const std::function<void(RawSession&, MemberId, const RawSession::Buffer&)>& corrupt) {
    start();
    const Clients others = start_ranks(node(), 2);
    for (const auto& client : others) client->tell("loop c0 1000 float32 sum n=400");
    Result<std::unique_ptr<RawSession>> raw = RawSession::attach(node());
    ASSERT_TRUE(raw.ok()) << raw.error().to_string();
    const Result<MemberId> member = (*raw)->create_lone_communicator();
    ASSERT_TRUE(member.ok()) << member.error().to_string();
    const Result<RawSession::Buffer> buffer = (*raw)->allocate(65536);
    ASSERT_TRUE(buffer.ok()) << buffer.error().to_string();
    corrupt(**raw, *member, *buffer);
    const ring::SessionState state = (*raw)->wait_state(kPrompt);
    EXPECT_TRUE(state == ring::SessionState::Quarantined || state == ring::SessionState::Closed)
        << "state " << static_cast<int>(state);
    EXPECT_EQ((*raw)->state_reason(), Reason::Quarantined);
    expect_metric_at_least("arcomm_sessions_lost_total", {"Quarantined"}, 1);
    expect_log("(pid " + std::to_string(::getpid()) +
               ") broke the ring protocol and is quarantined");
    for (const auto& client : others) {
      const Reply reply = client->hear();
      EXPECT_TRUE(reply.ok()) << "a bystander was harmed: " << reply.to_string();
    }
    // The liar's memory is taken back although it has not left.
    expect_metric_settles("arcomm_sessions", 2);
    expect_all_ok(others, "finalize");
  }
};

TEST_F(RingCorruption, AStampThatJumpsAheadEndsTheSession) {  // 13
  expect_quarantine([](RawSession& raw, MemberId, const RawSession::Buffer&) {
    raw.stamp_next_slot(ring::stamp_of(raw.position() + raw.slots(), raw.slots()));
    raw.ring_doorbell();
  });
}

// In the other cases nobody waits for the liar, so that the flight recorder has nothing of it.
TEST_F(RingCorruption, TheRankThatWaitsForALiarIsToldAtOnce) {  // 13
  start();
  const auto peer = ClientProcess::start(node());
  peer->expect_ok("init 20000");
  Result<std::unique_ptr<RawSession>> raw = RawSession::attach(node());
  ASSERT_TRUE(raw.ok()) << raw.error().to_string();
  const Result<MemberId> member = (*raw)->create_communicator_with(*peer);
  ASSERT_TRUE(member.ok()) << member.error().to_string();
  peer->tell("allreduce c0 1000 float32 sum");
  wait_in_flight(1);
  (*raw)->stamp_next_slot(~std::uint64_t{0});
  (*raw)->ring_doorbell();
  const Reply told = peer->hear(kPrompt);
  EXPECT_EQ(told.code, arcAborted) << told.to_string();
  EXPECT_EQ(told.reason, arcReasonQuarantined) << told.to_string();
  EXPECT_EQ(told.rank, 0) << told.to_string();
  expect_trace("Quarantined", 0);
  expect_metric_at_least("arcomm_communicators_revoked_total", {"Quarantined"}, 1);
  expect_metric_at_least("arcomm_sessions_lost_total", {"Quarantined"}, 1);
  expect_log("is revoked: rank 0 (pid " + std::to_string(::getpid()) + ")");
  peer->expect_ok("finalize");
}

TEST_F(RingCorruption, AStampThatGoesBackEndsTheSession) {  // 13
  expect_quarantine([](RawSession& raw, MemberId member, const RawSession::Buffer& buffer) {
    for (std::uint64_t seq = 0; seq < 3; ++seq)
      raw.submit(valid_request(member, seq, buffer.id, 16));
    for (int i = 0; i < 3; ++i) raw.next_completion(kPrompt);
    raw.stamp_next_slot(ring::stamp_of(1, raw.slots()));
    raw.ring_doorbell();
  });
}

TEST_F(RingCorruption, AStampAtTheEndOfTheNumbersEndsTheSession) {  // 13
  expect_quarantine([](RawSession& raw, MemberId, const RawSession::Buffer&) {
    raw.stamp_next_slot(~std::uint64_t{0});
    raw.ring_doorbell();
  });
}

TEST_F(RingCorruption, ACompletionHeadThatRunsPastTheTailEndsTheSession) {  // 13
  expect_quarantine([](RawSession& raw, MemberId member, const RawSession::Buffer& buffer) {
    // Noticed when the daemon next asks for room: at the latest once around the ring.
    for (std::uint64_t seq = 0; seq <= raw.slots() + 1; ++seq) {
      raw.control().completions.head.store(~std::uint64_t{0} - 7);
      if (raw.submit(valid_request(member, seq, buffer.id, 16)) != ring::Push::Done) break;
      ::usleep(100);
    }
  });
}

TEST_F(RingCorruption, ASlotThatIsNotARequestEndsTheSession) {  // 13
  expect_quarantine([](RawSession& raw, MemberId member, const RawSession::Buffer& buffer) {
    ring::WorkRequest request = valid_request(member, 0, buffer.id, 16);
    request.magic = 0xbeef;
    raw.submit(request);
  });
}

TEST_F(RingCorruption, AStaleSlotThatIsPublishedAgainEndsTheSession) {  // 13
  expect_quarantine([](RawSession& raw, MemberId member, const RawSession::Buffer& buffer) {
    raw.submit(valid_request(member, 0, buffer.id, 16));
    raw.next_completion(kPrompt);
    raw.request_slots()[1] = raw.request_slots()[0];
    raw.ring_doorbell();
  });
}

TEST_F(RingCorruption, TheSegmentCannotBeResizedAndAPunchedSlotEndsTheSession) {  // 14
  expect_quarantine([](RawSession& raw, MemberId, const RawSession::Buffer&) {
    EXPECT_NE(::ftruncate(raw.segment_fd(), 4096), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(::ftruncate(raw.segment_fd(), 1 << 24), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(::fcntl(raw.segment_fd(), F_ADD_SEALS, F_SEAL_WRITE), 0)
        << "the client could seal against the daemon";
    const auto slots_bytes =
        static_cast<off_t>(ring::segment_bytes_for(raw.slots()) - ring::kPageBytes);
    EXPECT_EQ(::fallocate(raw.segment_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<off_t>(ring::kPageBytes), slots_bytes),
              0);
    raw.ring_doorbell();
  });
}

TEST_F(RingCorruption, PunchingOutTheHeaderHarmsNobodyElse) {  // 14
  start();
  const Clients others = start_ranks(node(), 2);
  Result<std::unique_ptr<RawSession>> raw = RawSession::attach(node());
  ASSERT_TRUE(raw.ok()) << raw.error().to_string();
  EXPECT_EQ(::fallocate((*raw)->segment_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        static_cast<off_t>(ring::kPageBytes)),
            0);
  (*raw)->ring_doorbell();
  expect_all_ok(others, "allreduce c0 1000 float32 sum n=200");
  raw->reset();
  expect_all_ok(others, "finalize");
}

TEST_F(RingCorruption, APunchedBufferIsOnlyItsOwnersZeros) {  // 14
  start();
  Result<std::unique_ptr<RawSession>> raw = RawSession::attach(node());
  ASSERT_TRUE(raw.ok());
  const Result<MemberId> member = (*raw)->create_lone_communicator();
  const UniqueFd memory(::memfd_create("holes", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), 1 << 20), 0);
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const Result<RawSession::Buffer> buffer = (*raw)->register_memory(memory.get(), 0, 1 << 20);
  ASSERT_TRUE(buffer.ok()) << buffer.error().to_string();
  for (std::uint64_t seq = 0; seq < 50; ++seq) {
    ::fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
    (*raw)->submit(valid_request(*member, seq, buffer->id, 1 << 18));
    const std::optional<ring::Completion> completion = (*raw)->next_completion(kPrompt);
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(completion->code, 0) << completion->detail;
  }
}

TEST_F(RingCorruption, AnotherMajorVersionIsRefusedWithBothNumbers) {
  start();
  RawSession::Options options;
  options.ring_abi_major = kRingAbiMajor + 1;
  const Result<std::unique_ptr<RawSession>> newer = RawSession::attach(node(), options);
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.error().code, ErrorCode::FailedPrecondition);
  EXPECT_EQ(newer.error().reason, Reason::Version);
  EXPECT_NE(newer.error().message.find(std::to_string(kRingAbiMajor + 1)), std::string::npos)
      << newer.error().message;
  options = {};
  options.ring_abi_minor = 77;
  EXPECT_TRUE(RawSession::attach(node(), options).ok()) << "a newer minor version must work";
}

}  // namespace
}  // namespace arcomm::support
