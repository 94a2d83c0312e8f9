// The exchange between nodes with a codec, as device_fifo_gpu_test.cc has the other: results are
// the golden codec's bit for bit, on blocks of everything that codecs must not trip over.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/host/reference.h"
#include "tests/gpu/kernels/network/network_world.h"

namespace arcomm::gpu {
namespace {

constexpr SlotMode kSlotModes[] = {SlotMode::Normal, SlotMode::Offset, SlotMode::Pointer};
constexpr DType kCodedTypes[] = {DType::Float16, DType::BFloat16, DType::Float32};

// Every codec and type, each with another operation, slot mode and number of nodes.
std::vector<NetworkShape> coded_shapes() {
  std::vector<NetworkShape> all;
  for (const Codec codec : kRealCodecs) {
    for (const DType dtype : kCodedTypes) {
      const std::size_t number = all.size();
      all.push_back({.mode = kSlotModes[(number + number / 3) % 3],
                     .dtype = dtype,
                     .op = number % 2 == 0 ? ReduceOp::Sum : ReduceOp::Avg,
                     .nodes = 2 + static_cast<std::uint32_t>(number / 2 % 2),
                     .lanes = 1 + static_cast<std::uint32_t>(number % 4),
                     .codec = codec});
    }
  }
  return all;
}

void run_shape(const NetworkShape& shape, std::uint32_t operations) {
  SCOPED_TRACE(testing::Message() << shape);
  NetworkWorld world(shape);
  for (std::uint32_t operation = 1; operation <= operations; ++operation)
    ASSERT_NO_FATAL_FAILURE(world.run(operation));
  EXPECT_EQ(world.failures(), std::vector<std::string>{});
}

TEST(CodedExchange, EveryCodecAndTypeGivesTheGoldenCodecsBits) {
  for (NetworkShape shape : coded_shapes()) {
    shape.count = 100'003;
    ASSERT_NO_FATAL_FAILURE(run_shape(shape, 2));
    shape.nodes = 5 - shape.nodes;
    shape.op = shape.op == ReduceOp::Sum ? ReduceOp::Avg : ReduceOp::Sum;
    shape.mode = SlotMode::Normal;
    ASSERT_NO_FATAL_FAILURE(run_shape(shape, 1));
  }
}

TEST(CodedExchange, WhatTravelsIsWhatHostsSend) {
  for (NetworkShape shape : coded_shapes()) {
    shape.mode = SlotMode::Normal;
    shape.lanes = 1;
    shape.count = 3'333;
    SCOPED_TRACE(testing::Message() << shape);
    NetworkWorld world(shape);
    ASSERT_NO_FATAL_FAILURE(world.run(1));
    AllReduceArgs args = AllReduceArgs::among(1, shape.count, shape.dtype);
    args.codec = shape.codec;
    args.stage = ReduceStage::Partial;
    for (std::uint32_t number = 0; number < shape.nodes; ++number) {
      std::vector<std::byte> right(shape.wire_bytes(shape.count));
      args.inputs[0] = world.node(number).partial().data();
      args.outputs[0] = right.data();
      reference::all_reduce_range(args, 0, shape.count);
      const auto sent = world.node(number).slots_to(number == 0 ? 1 : 0);
      const auto wrong = std::mismatch(right.begin(), right.end(), sent.begin()).first;
      EXPECT_EQ(wrong, right.end()) << "node " << number << ": byte " << wrong - right.begin();
    }
  }
}

TEST(CodedExchange, AnyCountEndsWithinABlockAGroupOrAChunk) {
  for (const std::uint64_t count :
       {0, 1, 31, 32, 33, 511, 512, 513, 1000, 4095, 4096, 4097, 8191, 8192 + 17}) {
    for (NetworkShape shape : coded_shapes()) {
      shape.count = count;
      ASSERT_NO_FATAL_FAILURE(run_shape(shape, 1));
    }
  }
}

TEST(CodedExchange, TheResultMayGoWhereThePartialIs) {
  for (NetworkShape shape : coded_shapes()) {
    shape.is_in_place = true;
    shape.count = 50'001;
    ASSERT_NO_FATAL_FAILURE(run_shape(shape, 4));
  }
}

TEST(CodedExchange, SeveralRanksOfANodeAreAddedFirstAndAllGetTheResult) {
  for (const bool is_in_place : {false, true}) {
    std::uint32_t number = 0;
    for (NetworkShape shape : coded_shapes()) {
      shape.is_wide = true;
      shape.is_in_place = is_in_place;
      shape.count = 30'007;
      shape.seats = 1 + number % 4;
      shape.shift = number++ % 3;
      ASSERT_NO_FATAL_FAILURE(run_shape(shape, 2));
    }
  }
}

TEST(CodedExchange, PointersAndSlotsMayBeOffTheirVectors) {
  for (NetworkShape shape : coded_shapes()) {
    shape.count = 5'003;
    shape.shift = 3;
    ASSERT_NO_FATAL_FAILURE(run_shape(shape, 1));
    shape.shift = 0;
    shape.chunk_elements = 3 * kCodecBlock;  // a slot is no multiple of 16 bytes
    ASSERT_NO_FATAL_FAILURE(run_shape(shape, 1));
  }
}

TEST(CodedExchange, ChunksMayBeAsLongAsTheDaemonCutsThem) {
  for (NetworkShape shape : coded_shapes()) {
    shape.count = 400'000;
    shape.chunk_elements = 65'536;
    ASSERT_NO_FATAL_FAILURE(run_shape(shape, 1));
  }
}

TEST(CodedExchange, AFifoServesManyOperations) {
  for (const bool is_in_place : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(run_shape({.dtype = DType::BFloat16,
                                       .is_in_place = is_in_place,
                                       .nodes = 3,
                                       .count = 20'000,
                                       .chunk_elements = 512,
                                       .codec = Codec::Q6Rotated},
                                      100));
  }
}

TEST(CodedExchange, APeerThatDoesNotComeIsNamedAtTheDeadline) {
  for (const std::uint64_t count : {1000, 1'000'000}) {  // waits for data; for room, too
    const NetworkShape shape{.count = count, .codec = Codec::Q4};
    SCOPED_TRACE(testing::Message() << shape);
    NetworkWorld world(shape);
    world.prepare(1);
    ASSERT_TRUE(world.node(0).launch(1, 50'000'000));
    world.proxy().ring();
    const Done done = world.node(0).wait(1);
    ASSERT_EQ(done.number, 1U) << "no verdict";
    EXPECT_EQ(name_of(error_code_from(done.code)), name_of(ErrorCode::DeadlineExceeded));
    EXPECT_EQ(done.culprit_rank, 1);
    EXPECT_EQ(world.failures(1).size(), 1U);
  }
}

TEST(CodedExchange, WhatNoKernelServesIsRefused) {
  for (const NetworkShape& shape :
       {NetworkShape{.dtype = DType::Int32, .codec = Codec::Q8},
        NetworkShape{.op = ReduceOp::Max, .codec = Codec::Q8},
        NetworkShape{.count = 10, .chunk_elements = 40, .codec = Codec::Q8},
        NetworkShape{.is_ring = true, .codec = Codec::Q8}}) {
    SCOPED_TRACE(testing::Message() << shape);
    NetworkWorld world(shape);
    EXPECT_FALSE(world.node(0).launch(1, 1'000'000));
  }
}

}  // namespace
}  // namespace arcomm::gpu
