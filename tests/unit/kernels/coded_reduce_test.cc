#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/codec/golden.h"
#include "kernels/host/launch.h"
#include "kernels/host/reference.h"
#include "tests/unit/kernels/codec_samples.h"
#include "tests/unit/kernels/on_target.h"
#include "tests/unit/kernels/sample_operation.h"

namespace arcomm {
namespace {

constexpr DType kCodedTypes[] = {DType::Float16, DType::BFloat16, DType::Float32};

class CodedOnTarget : public OnTarget {};

// As random_shape, cut between blocks.
Shape random_coded_shape(Codec codec, DType dtype, ReduceOp op, std::mt19937_64& random) {
  Shape shape = random_shape(dtype, op, random);
  shape.codec = codec;
  shape.first = shape.first / kCodecBlock * kCodecBlock;
  if (shape.last != shape.count)
    shape.last = std::max(shape.first, shape.last / kCodecBlock * kCodecBlock);
  return shape;
}

TEST_P(CodedOnTarget, EqualsTheGoldenCodecBitForBit) {
  std::mt19937_64 random(20261125);
  for (const Codec codec : kRealCodecs) {
    for (const DType dtype : kCodedTypes) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg}) {
        for (int i = 0; i < 25; ++i) {
          const Shape shape = random_coded_shape(codec, dtype, op, random);
          ASSERT_EQ(SampleOperation(shape).run_and_compare(), "");
        }
      }
    }
  }
}

TEST_P(CodedOnTarget, AnyInputsGoToAnyOutputsAndAvgDividesByTheWorld) {
  for (const Codec codec : kRealCodecs) {
    for (const std::uint32_t outputs : {1U, 3U}) {
      const Shape shape{.dtype = DType::BFloat16,
                        .op = ReduceOp::Avg,
                        .codec = codec,
                        .ranks = 2,
                        .outputs = outputs,
                        .divisor = 200,
                        .count = 150,
                        .last = 150,
                        .in_place = outputs == 1,
                        .seed = outputs};
      ASSERT_EQ(SampleOperation(shape).run_and_compare(), "");
    }
  }
}

// Blocks that are hard for a format, alone and as the second rank's.
TEST_P(CodedOnTarget, HardBlocksEqualTheGoldenCodec) {
  std::vector<Block> blocks = adversarial_blocks();
  std::mt19937_64 random(12);
  for (int i = 0; i < 300; ++i) blocks.push_back(random_block(random));
  for (const float value : {std::numeric_limits<float>::infinity(),
                            std::bit_cast<float>(0xffc12345U), std::bit_cast<float>(0x7f800001U)}) {
    blocks.push_back(random_block(random));
    blocks.back()[9] = value;
  }
  const std::size_t count = blocks.size() * kCodecBlock;
  std::vector<Block> others = blocks;
  std::ranges::reverse(others);
  std::vector<float> got(count), also(count), want(count);
  for (const Codec codec : kRealCodecs) {
    for (const std::uint32_t ranks : {1U, 2U}) {
      AllReduceArgs args = AllReduceArgs::among(ranks, count, DType::Float32);
      args.codec = codec;
      args.inputs[0] = blocks.data();
      args.inputs[1] = others.data();
      args.outputs[0] = got.data();
      args.outputs[1] = also.data();
      all_reduce_range(inline_choice(), args, 0, count);
      args.outputs[0] = want.data();
      reference::all_reduce_range(args, 0, count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
            << text_of(codec) << " block " << i / kCodecBlock << " element " << i % kCodecBlock;
      }
    }
  }
}

// Every product that e4m3 or an integer is made of, in float16's grid beside a fixed largest value.
TEST_P(CodedOnTarget, AllHalvesAreQuantizedAsByTheGoldenCodec) {
  std::vector<std::uint16_t> in, got, want;
  for (std::uint32_t half = 0; half < 0x7c00; ++half) {
    if (half % 31 == 0) in.push_back(half % 2 == 0 ? 0x5f00 : 0xdf00);  // 448
    const bool is_below = half < 0x5f00;
    in.push_back(static_cast<std::uint16_t>((is_below ? half : 0U) | (half & 1U) << 15));
  }
  got.resize(in.size());
  want.resize(in.size());
  for (const Codec codec : kRealCodecs) {
    AllReduceArgs args = AllReduceArgs::among(1, in.size(), DType::Float16);
    args.codec = codec;
    args.inputs[0] = in.data();
    args.outputs[0] = got.data();
    all_reduce_range(inline_choice(), args, 0, args.count);
    args.outputs[0] = want.data();
    reference::all_reduce_range(args, 0, args.count);
    ASSERT_EQ(got, want) << text_of(codec);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, CodedOnTarget, testing::ValuesIn(runnable_targets()),
                         [](const testing::TestParamInfo<std::int64_t>& tested) {
                           return std::string(hwy::TargetName(tested.param));
                         });

// However an operation is cut into tiles its blocks stay whole.
TEST(CodedReduce, TilesBeginWhereBlocksDo) {
  constexpr std::uint64_t kCount = 10'007;
  std::mt19937_64 random(4);
  std::vector<float> in(kCount), want(kCount);
  for (float& value : in) value = static_cast<float>(random() % 1000) - 500;
  AllReduceArgs args = AllReduceArgs::among(1, kCount, DType::Float32);
  args.codec = Codec::Q4Rotated;
  args.inputs[0] = in.data();
  args.outputs[0] = want.data();
  reference::all_reduce_range(args, 0, kCount);
  for (const std::uint32_t tile_bytes : {kMinTileBytes, kMinTileBytes + 64, kMinTileBytes + 100}) {
    std::vector<float> got(kCount);
    args.outputs[0] = got.data();
    const Choice choice{.algorithm = Algorithm::TiledStreaming, .tile_bytes = tile_bytes};
    TileCursor cursor;
    cursor.start(choice, args);
    EXPECT_GT(cursor.tiles(), 8u);
    while (cursor.pull(choice, args)) {
    }
    EXPECT_TRUE(cursor.finished());
    ASSERT_EQ(got, want) << tile_bytes;
  }
}

}  // namespace
}  // namespace arcomm
