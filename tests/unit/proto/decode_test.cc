#include "proto/ring/decode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string_view>

namespace arcomm::ring {
namespace {

WorkRequest good() {
  WorkRequest slot;
  slot.dtype = static_cast<std::uint8_t>(DType::Float32);
  slot.op = static_cast<std::uint8_t>(ReduceOp::Max);
  slot.ticket = 5;
  slot.member = MemberId{1, 2}.bits();
  slot.seq = 9;
  slot.send_buffer = BufferId{3, 4}.bits();
  slot.recv_buffer = BufferId{5, 6}.bits();
  slot.send_offset_bytes = 64;
  slot.recv_offset_bytes = 128;
  slot.count = 10;
  slot.timeout_ns = 77;
  return slot;
}

Decode decoded(const WorkRequest& slot, Request& request) {
  const char* detail = "";
  const Decode form = decode(slot, request, detail);
  if (form != Decode::Done) {
    EXPECT_FALSE(std::string_view(detail).empty());
  }
  return form;
}

TEST(Decode, TurnsAGoodSlotIntoTypedValues) {
  Request request;
  ASSERT_EQ(decoded(good(), request), Decode::Done);
  EXPECT_EQ(request.ticket, 5u);
  EXPECT_EQ(request.member, (MemberId{1, 2}));
  EXPECT_EQ(request.seq, 9u);
  EXPECT_EQ(request.send.buffer, (BufferId{3, 4}));
  EXPECT_EQ(request.send.offset_bytes, 64u);
  EXPECT_EQ(request.recv.buffer, (BufferId{5, 6}));
  EXPECT_EQ(request.recv.offset_bytes, 128u);
  EXPECT_EQ(request.count, 10u);
  EXPECT_EQ(request.dtype, DType::Float32);
  EXPECT_EQ(request.op, ReduceOp::Max);
  EXPECT_EQ(request.timeout_ns, 77u);
}

TEST(Decode, TellsAStrangerFromARequest) {
  WorkRequest slot = good();
  slot.magic = 0;
  Request request;
  EXPECT_EQ(decoded(slot, request), Decode::BadMagic);
}

TEST(Decode, RefusesEachValueOutsideItsTableAndStillNamesTheCaller) {
  const auto refused = [](auto spoil) {
    WorkRequest slot = good();
    spoil(slot);
    Request request;
    const bool bad = decoded(slot, request) == Decode::BadValue;
    return bad && request.ticket == 5 && request.seq == 9;
  };
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.kind = static_cast<RequestKind>(0); }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.kind = static_cast<RequestKind>(3); }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.dtype = kDTypes; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.dtype = 255; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.op = kReduceOps; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.codec = 1; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.member = 0; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.member = 42; }));  // generation 0
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.send_buffer = 0; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.recv_buffer = 0; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) {
    slot.kind = RequestKind::StartPlan;
    slot.plan = 0;
  }));
}

TEST(Decode, RefusesACountWhoseBytesOverflow) {
  WorkRequest slot = good();
  Request request;
  slot.count = std::numeric_limits<std::uint64_t>::max() / 4;
  EXPECT_EQ(decoded(slot, request), Decode::Done);  // the largest that fits
  slot.count += 1;
  EXPECT_EQ(decoded(slot, request), Decode::BadValue);
  slot.count = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(decoded(slot, request), Decode::BadValue);
}

TEST(Decode, ACountOfZeroNeedsNoBuffers) {
  WorkRequest slot = good();
  slot.count = 0;
  slot.send_buffer = slot.recv_buffer = 0;
  Request request;
  EXPECT_EQ(decoded(slot, request), Decode::Done);
}

TEST(Decode, APlanNeedsOnlyItsId) {
  WorkRequest slot;
  slot.kind = RequestKind::StartPlan;
  slot.member = MemberId{1, 2}.bits();
  slot.plan = PlanId{8, 9}.bits();
  slot.dtype = 255;  // not looked at
  Request request;
  ASSERT_EQ(decoded(slot, request), Decode::Done);
  EXPECT_EQ(request.plan, (PlanId{8, 9}));
}

TEST(Decode, WhateverItAcceptsLiesInItsTables) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    WorkRequest slot;
    std::uint64_t words[16];
    for (std::uint64_t& word : words) word = random();
    std::memcpy(&slot, words, sizeof(slot));
    slot.magic = kRequestMagic;
    slot.kind = static_cast<RequestKind>(random() % 4);
    slot.dtype = static_cast<std::uint8_t>(random() % 12);
    slot.op = static_cast<std::uint8_t>(random() % 6);
    slot.codec = static_cast<std::uint8_t>(random() % 2);
    if (random() % 2 == 0) slot.count %= 1 << 20;
    Request request;
    const char* detail = "";
    if (decode(slot, request, detail) != Decode::Done) continue;
    ASSERT_TRUE(request.member.valid());
    ASSERT_LT(static_cast<unsigned>(request.dtype), kDTypes);
    ASSERT_LT(static_cast<unsigned>(request.op), kReduceOps);
    ASSERT_EQ(request.codec, Codec::None);
    ASSERT_LE(request.count, std::numeric_limits<std::uint64_t>::max() / size_of(request.dtype));
  }
}

}  // namespace
}  // namespace arcomm::ring
