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
  slot.send_count = slot.recv_count = 10;
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
  EXPECT_FALSE(request.plan.valid());
  EXPECT_EQ(request.spec, all_reduce_of(10, DType::Float32, ReduceOp::Max));
  EXPECT_EQ(request.total_count, 10u) << "not cut";
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
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.collective = kCollectives; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.collective = 255; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.root = 0; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.root = -2; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.recv_count = 11; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.total_count = 9; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.dtype = kDTypes; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.dtype = 255; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.op = kReduceOps; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.codec = kCodecs; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.member = 0; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.member = 42; }));  // generation 0
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.send_buffer = 0; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.recv_buffer = 0; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.plan = 42; }));  // generation 0
}

TEST(Decode, TellsACodecThatWasNamedFromWhatAnErrorClassCameTo) {
  WorkRequest slot = good();
  Request request;
  slot.codec = static_cast<std::uint8_t>(Codec::Q6);
  ASSERT_EQ(decoded(slot, request), Decode::Done);
  EXPECT_EQ(request.spec.codec_origin, CodecOrigin::Named);
  EXPECT_EQ(codec_byte_of(request.spec), slot.codec);
  slot.codec = kOfErrorClass;
  ASSERT_EQ(decoded(slot, request), Decode::Done);
  EXPECT_EQ(request.spec.codec, Codec::None);
  EXPECT_EQ(request.spec.codec_origin, CodecOrigin::ErrorClass);
  EXPECT_EQ(codec_byte_of(request.spec), slot.codec);
}

TEST(Decode, SaysByNameWhatItDoesNotKnow) {
  const auto told = [](auto spoil) {
    WorkRequest slot = good();
    spoil(slot);
    Request request;
    const char* detail = "";
    EXPECT_EQ(decode(slot, request, detail), Decode::BadValue);
    return std::string_view(detail);
  };
  EXPECT_EQ(told([](WorkRequest& slot) { slot.collective = 5; }),
            "the collective is unknown: this version knows all_reduce");
  EXPECT_EQ(told([](WorkRequest& slot) { slot.codec = kCodecs; }),
            "the codec is unknown: this version knows 0 (none) to 7 (q4_rotated)");
  EXPECT_EQ(told([](WorkRequest& slot) { slot.recv_count = 20; }),
            "an all_reduce receives as many elements as it sends");
  EXPECT_EQ(told([](WorkRequest& slot) { slot.root = 1; }), "an all_reduce has no root");
}

TEST(Decode, RefusesACountWhoseBytesOverflow) {
  WorkRequest slot = good();
  Request request;
  const auto ask = [&slot](std::uint64_t count) { slot.send_count = slot.recv_count = count; };
  ask(std::numeric_limits<std::uint64_t>::max() / 4);
  EXPECT_EQ(decoded(slot, request), Decode::Done);  // the largest that fits
  ask(slot.send_count + 1);
  EXPECT_EQ(decoded(slot, request), Decode::BadValue);
  ask(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(decoded(slot, request), Decode::BadValue);
}

TEST(Decode, ACountOfZeroNeedsNoBuffers) {
  WorkRequest slot = good();
  slot.send_count = slot.recv_count = 0;
  slot.send_buffer = slot.recv_buffer = 0;
  Request request;
  EXPECT_EQ(decoded(slot, request), Decode::Done);
}

TEST(Decode, APlanNeedsOnlyItsId) {
  WorkRequest slot;
  slot.member = MemberId{1, 2}.bits();
  slot.plan = PlanId{8, 9}.bits();
  slot.dtype = 255;  // not looked at
  Request request;
  ASSERT_EQ(decoded(slot, request), Decode::Done);
  EXPECT_EQ(request.plan, (PlanId{8, 9}));
}

WorkRequest good_plan() {
  WorkRequest slot = good();
  slot.magic = kPlanMagic;
  return slot;
}

TEST(Decode, TurnsARequestForAPlanIntoTypedValues) {
  PlanRequest request;
  const char* detail = "";
  ASSERT_EQ(decode(good_plan(), request, detail), Decode::Done);
  EXPECT_EQ(request.ticket, 5u);
  EXPECT_FALSE(request.removed.valid());
  EXPECT_EQ(request.member, (MemberId{1, 2}));
  EXPECT_EQ(request.send.buffer, (BufferId{3, 4}));
  EXPECT_EQ(request.send.offset_bytes, 64u);
  EXPECT_EQ(request.recv.buffer, (BufferId{5, 6}));
  EXPECT_EQ(request.recv.offset_bytes, 128u);
  EXPECT_EQ(request.spec, all_reduce_of(10, DType::Float32, ReduceOp::Max));
  EXPECT_EQ(request.timeout_ns, 77u);

  WorkRequest removal;
  removal.magic = kPlanMagic;
  removal.plan = PlanId{8, 9}.bits();
  ASSERT_EQ(decode(removal, request, detail), Decode::Done);
  EXPECT_EQ(request.removed, (PlanId{8, 9}));
}

TEST(Decode, RefusesAPlanOutsideTheTablesAndStillNamesTheCaller) {
  const auto refused = [](auto spoil, Decode as = Decode::BadValue) {
    WorkRequest slot = good_plan();
    spoil(slot);
    PlanRequest request;
    const char* detail = "";
    return decode(slot, request, detail) == as && request.ticket == 5 && *detail != '\0';
  };
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.magic = kRequestMagic; }, Decode::BadMagic));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.collective = 255; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.dtype = 255; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.op = 255; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.codec = 255; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.codec = kOfErrorClass | kCodecs; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.recv_count = 11; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.send_count = slot.recv_count = ~0ull; }));
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.member = 42; }));  // generation 0
  EXPECT_TRUE(refused([](WorkRequest& slot) { slot.plan = 42; }));    // generation 0
}

TEST(Decode, ARequestForAPlanIsNoOperation) {
  Request request;
  EXPECT_EQ(decoded(good_plan(), request), Decode::BadMagic);
}

TEST(Decode, WhateverItAcceptsLiesInItsTables) {
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    WorkRequest slot;
    std::uint64_t words[16];
    for (std::uint64_t& word : words) word = random();
    std::memcpy(&slot, words, sizeof(slot));
    slot.magic = kRequestMagic;
    if (random() % 2 == 0) slot.plan = 0;
    if (random() % 4 != 0) slot.root = -1;
    slot.collective = static_cast<std::uint8_t>(random() % 2);
    slot.dtype = static_cast<std::uint8_t>(random() % 12);
    slot.op = static_cast<std::uint8_t>(random() % 6);
    slot.codec = static_cast<std::uint8_t>(random() % (kCodecs + 2));
    if (random() % 2 == 0) slot.send_count %= 1 << 20;
    if (random() % 4 != 0) slot.recv_count = slot.send_count;
    if (random() % 4 != 0) slot.total_count = slot.first_element = 0;
    Request request;
    const char* detail = "";
    if (decode(slot, request, detail) != Decode::Done) continue;
    ++accepted;
    ASSERT_TRUE(request.member.valid());
    if (request.plan.valid()) continue;
    const OperationSpec& spec = request.spec;
    ASSERT_EQ(spec.collective, Collective::AllReduce);
    ASSERT_LT(static_cast<unsigned>(spec.dtype), kDTypes);
    ASSERT_LT(static_cast<unsigned>(spec.op), kReduceOps);
    ASSERT_LT(static_cast<unsigned>(spec.codec), kCodecs);
    ASSERT_EQ(spec.root, kNoRank);
    ASSERT_EQ(spec.send_count, spec.recv_count);
    ASSERT_LE(spec.send_count, std::numeric_limits<std::uint64_t>::max() / size_of(spec.dtype));
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace arcomm::ring
