// The bytes that two processes of different builds share: a change here is a change of the ring's
// version.
#include "proto/ring/layout.h"

#include <gtest/gtest.h>

#include "proto/fd_message.h"
#include "proto/gpu/device_mailbox.h"

namespace arcomm::ring {
namespace {

TEST(Layout, ARequestsFieldsStayWhereTheyAre) {
  EXPECT_EQ(offsetof(WorkRequest, magic), 0u);
  EXPECT_EQ(offsetof(WorkRequest, root), 2u);
  EXPECT_EQ(offsetof(WorkRequest, collective), 4u);
  EXPECT_EQ(offsetof(WorkRequest, dtype), 5u);
  EXPECT_EQ(offsetof(WorkRequest, op), 6u);
  EXPECT_EQ(offsetof(WorkRequest, codec), 7u);
  EXPECT_EQ(offsetof(WorkRequest, ticket), 8u);
  EXPECT_EQ(offsetof(WorkRequest, member), 16u);
  EXPECT_EQ(offsetof(WorkRequest, seq), 24u);
  EXPECT_EQ(offsetof(WorkRequest, plan), 32u);
  EXPECT_EQ(offsetof(WorkRequest, timeout_ns), 40u);
  EXPECT_EQ(offsetof(WorkRequest, submitted_ns), 48u);
  EXPECT_EQ(offsetof(WorkRequest, stamp), 56u);
  EXPECT_EQ(offsetof(WorkRequest, send_buffer), 64u);
  EXPECT_EQ(offsetof(WorkRequest, send_offset_bytes), 72u);
  EXPECT_EQ(offsetof(WorkRequest, recv_buffer), 80u);
  EXPECT_EQ(offsetof(WorkRequest, recv_offset_bytes), 88u);
  EXPECT_EQ(offsetof(WorkRequest, send_count), 96u);
  EXPECT_EQ(offsetof(WorkRequest, recv_count), 104u);
  EXPECT_EQ(offsetof(WorkRequest, total_count), 112u);
  EXPECT_EQ(offsetof(WorkRequest, first_element), 120u);
}

TEST(Layout, ACompletionsFieldsStayWhereTheyAre) {
  EXPECT_EQ(offsetof(Completion, ticket), 0u);
  EXPECT_EQ(offsetof(Completion, seq), 8u);
  EXPECT_EQ(offsetof(Completion, code), 16u);
  EXPECT_EQ(offsetof(Completion, reason), 17u);
  EXPECT_EQ(offsetof(Completion, stage), 18u);
  EXPECT_EQ(offsetof(Completion, culprit_rank), 20u);
  EXPECT_EQ(offsetof(Completion, elapsed_ns), 24u);
  EXPECT_EQ(offsetof(Completion, stamp), 32u);
  EXPECT_EQ(offsetof(Completion, detail), 40u);
}

TEST(Layout, ADoorbellIsOneWord) {
  constexpr std::uint32_t kLast = (1U << kIdentityBits) - 1;
  EXPECT_EQ(to_word(Doorbell{.number = 7, .plan = 3}), 3ull << 32 | 7);
  for (const Doorbell& rung :
       {Doorbell{}, Doorbell{1, kMaxDevicePlans - 1, 0}, Doorbell{~0U, 0, 1},
        Doorbell{~0U, kMaxDevicePlans - 1, kLast}, Doorbell{5, 4, identity_of_captured(12)}}) {
    const Doorbell read = doorbell_from(to_word(rung));
    EXPECT_EQ(read.number, rung.number);
    EXPECT_EQ(read.plan, rung.plan);
    EXPECT_EQ(read.identity, rung.identity);
  }
}

TEST(Layout, IdentitiesComeRoundWithoutThatOfNoGraph) {
  EXPECT_EQ(identity_of_captured(0), 1U);
  EXPECT_EQ(identity_of_captured((1U << kIdentityBits) - 2), (1U << kIdentityBits) - 1);
  EXPECT_EQ(identity_of_captured((1U << kIdentityBits) - 1), 1U);
}

TEST(Layout, WordsOfDifferentWritersNeverShareALine) {
  EXPECT_EQ(offsetof(ConsumerLines, head), 0u);
  EXPECT_EQ(offsetof(ConsumerLines, consumer_sleeps), kLineBytes);
  EXPECT_EQ(sizeof(ConsumerLines), 2 * kLineBytes);
  EXPECT_EQ(offsetof(SegmentPage, control) % kLineBytes, 0u);
  EXPECT_EQ(offsetof(ControlLines, requests), kLineBytes);
  EXPECT_EQ(offsetof(ControlLines, completions), 3 * kLineBytes);
}

TEST(Layout, TheSegmentIsAPageAndTwoRings) {
  EXPECT_EQ(segment_bytes_for(8), 4096u + 2 * 8 * 128);
  EXPECT_EQ(segment_bytes_for(kMaxSlots), 4096ull + 2 * 65536ull * 128);
}

TEST(Layout, AFreshRequestCarriesItsMagicAndNothingElse) {
  const WorkRequest request;
  EXPECT_EQ(request.magic, kRequestMagic);
  EXPECT_EQ(request.member, 0u);
  EXPECT_EQ(request.stamp, 0u);
}

}  // namespace
}  // namespace arcomm::ring
