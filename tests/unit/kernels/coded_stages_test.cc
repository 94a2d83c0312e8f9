// Operations with a codec in stages, as between nodes: the bytes that travel, and what becomes of
// them, are the golden codec's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/codec/golden.h"
#include "kernels/host/element.h"
#include "kernels/host/launch.h"
#include "kernels/host/reference.h"
#include "kernels/host/reference_coded.h"
#include "proto/coding.h"
#include "tests/unit/kernels/codec_samples.h"
#include "tests/unit/kernels/on_target.h"

namespace arcomm {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Block> hard_blocks(std::uint64_t seed) {
  std::vector<Block> blocks = adversarial_blocks();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) blocks.push_back(random_block(random));
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::bit_cast<float>(0xffc12345U)}) {
    blocks.push_back(random_block(random));
    blocks.back()[9] = value;
  }
  std::ranges::shuffle(blocks, random);
  return blocks;
}

// Elements of a type that are these floats, rounded.
Bytes elements_of(DType dtype, const std::vector<Block>& blocks, std::uint64_t count) {
  Bytes bytes(count * size_of(dtype));
  for (std::uint64_t i = 0; i < count; ++i) {
    const float value = blocks[i / kCodecBlock][i % kCodecBlock];
    const std::uint16_t half =
        dtype == DType::Float16 ? float16_from_float(value) : bfloat16_from_float(value);
    if (dtype == DType::Float32) {
      std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
    } else {
      std::memcpy(bytes.data() + i * sizeof(half), &half, sizeof(half));
    }
  }
  return bytes;
}

class CodedStages : public OnTarget {
 protected:
  static void run(ReduceStage stage, AllReduceArgs args, std::vector<const void*> inputs,
                  void* output) {
    args.stage = stage;
    args.num_inputs = static_cast<std::uint32_t>(inputs.size());
    std::ranges::copy(inputs, args.inputs);
    args.num_outputs = 1;
    args.outputs[0] = output;
    all_reduce_range(inline_choice(), args, 0, args.count);
  }
};

TEST_P(CodedStages, AnEncodedBlockHasTheGoldenCodecsBytes) {
  const std::vector<Block> blocks = hard_blocks(7);
  const std::uint64_t count = blocks.size() * kCodecBlock;
  for (const Codec codec : kRealCodecs) {
    AllReduceArgs args = AllReduceArgs::among(1, count, DType::Float32);
    args.codec = codec;
    Bytes got(coded_bytes(codec, count)), want(got.size());
    run(ReduceStage::Partial, args, {blocks.data()}, got.data());
    for (std::size_t i = 0; i < blocks.size(); ++i)
      golden::encode(codec, blocks[i], want.data() + i * format_of(codec).block_bytes());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], want[i]) << text_of(codec) << " block "
                                 << i / format_of(codec).block_bytes() << " byte "
                                 << i % format_of(codec).block_bytes();
    }
  }
}

// A packed block is a peer's word.
TEST_P(CodedStages, AnyBytesDecodeAsByTheGoldenCodecAndWithoutHarm) {
  constexpr std::size_t kBlocks = 2000;
  std::mt19937_64 random(9);
  for (const Codec codec : kRealCodecs) {
    if (format_of(codec).rotated) continue;  // the same bytes, turned back
    AllReduceArgs args = AllReduceArgs::among(1, kBlocks * kCodecBlock, DType::Float32);
    args.codec = codec;
    Bytes bytes(coded_bytes(codec, args.count));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    std::vector<float> got(args.count);
    run(ReduceStage::Final, args, {bytes.data()}, got.data());
    for (std::size_t i = 0; i < kBlocks; ++i) {
      Block want{};
      golden::decode(codec, bytes.data() + i * format_of(codec).block_bytes(), want);
      for (std::size_t j = 0; j < kCodecBlock; ++j) {
        const float value = got[i * kCodecBlock + j];
        const bool are_nan = value != value && want[j] != want[j];
        ASSERT_TRUE(are_nan ||
                    std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(want[j]))
            << text_of(codec) << " block " << i << " element " << j << ": " << value << ", not "
            << want[j];
      }
    }
  }
}

TEST_P(CodedStages, OneInputEachInTwoStagesGivesTheBitsOfOne) {
  const std::vector<Block> first = hard_blocks(1), second = hard_blocks(2), third = hard_blocks(3);
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{31}, std::uint64_t{33},
                                    (first.size() - 1) * kCodecBlock + 7}) {
    for (const Codec codec : kRealCodecs) {
      for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
        AllReduceArgs args = AllReduceArgs::among(3, count, dtype, ReduceOp::Avg);
        args.codec = codec;
        const std::vector<Bytes> inputs{elements_of(dtype, first, count),
                                        elements_of(dtype, second, count),
                                        elements_of(dtype, third, count)};
        std::vector<Bytes> partials(3, Bytes(coded_bytes(codec, count)));
        for (std::size_t i = 0; i < inputs.size(); ++i)
          run(ReduceStage::Partial, args, {inputs[i].data()}, partials[i].data());
        Bytes got(count * size_of(dtype)), want(got.size());
        run(ReduceStage::Final, args, {partials[0].data(), partials[1].data(), partials[2].data()},
            got.data());
        for (std::size_t i = 0; i < inputs.size(); ++i) args.inputs[i] = inputs[i].data();
        args.num_outputs = 1;
        args.outputs[0] = want.data();
        reference::all_reduce_range(args, 0, count);
        ASSERT_EQ(got, want) << text_of(codec) << " " << text_of(dtype) << " x " << count;
      }
    }
  }
}

TEST_P(CodedStages, ASumThatIsEncodedOnceMoreIsThatOfTwoHops) {
  const std::vector<Block> first = hard_blocks(4), second = hard_blocks(5);
  const std::uint64_t count = (first.size() - 1) * kCodecBlock + 5;
  for (const Codec codec : kRealCodecs) {
    for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
      AllReduceArgs args = AllReduceArgs::among(2, count, dtype, ReduceOp::Avg);
      args.codec = codec;
      const Bytes inputs[] = {elements_of(dtype, first, count), elements_of(dtype, second, count)};
      Bytes partials[2], sums(coded_bytes(codec, count));
      for (std::size_t i = 0; i < 2; ++i) {
        partials[i].resize(coded_bytes(codec, count));
        run(ReduceStage::Partial, args, {inputs[i].data()}, partials[i].data());
      }
      run(ReduceStage::Recode, args, {partials[0].data(), partials[1].data()}, sums.data());
      Bytes got(count * size_of(dtype)), want(got.size());
      AllReduceArgs of_one = args;
      of_one.op = ReduceOp::Sum;
      run(ReduceStage::Final, of_one, {sums.data()}, got.data());
      for (std::size_t i = 0; i < 2; ++i) args.inputs[i] = inputs[i].data();
      args.num_outputs = 1;
      args.outputs[0] = want.data();
      reference::coded_all_reduce_in_two_hops(args, 0, count);
      ASSERT_EQ(got, want) << text_of(codec) << " " << text_of(dtype);
    }
  }
}

// A node's ranks are added before they are encoded, in their order: quantized once, together.
TEST_P(CodedStages, SeveralInputsAreAddedAndEncodedOnce) {
  const std::vector<Block> first = hard_blocks(11), second = hard_blocks(12);
  const std::uint64_t count = first.size() * kCodecBlock;
  for (const Codec codec : kRealCodecs) {
    AllReduceArgs args = AllReduceArgs::among(2, count, DType::Float32);
    args.codec = codec;
    Bytes got(coded_bytes(codec, count)), want(got.size());
    run(ReduceStage::Partial, args, {first.data(), second.data()}, got.data());
    for (std::size_t i = 0; i < first.size(); ++i) {
      Block sum = first[i];
      for (std::size_t j = 0; j < kCodecBlock; ++j) sum[j] += second[i][j];
      golden::encode(codec, sum, want.data() + i * format_of(codec).block_bytes());
    }
    ASSERT_EQ(got, want) << text_of(codec);
  }
}

// Opposite extremes, of which each rank's alone has a code and their sum's has none on its side.
TEST_P(CodedStages, ANodesSumErrsByNoMoreThanTheBoundOfThatSum) {
  Block first{}, second{}, sum{};
  first[0] = sum[0] = 128.5F;
  second[1] = sum[1] = -128.5F;
  for (const Codec codec : kRealCodecs) {
    AllReduceArgs args = AllReduceArgs::among(2, kCodecBlock, DType::Float32);
    args.codec = codec;
    Bytes bytes(coded_bytes(codec, kCodecBlock));
    run(ReduceStage::Partial, args, {first.data(), second.data()}, bytes.data());
    Block got{};
    run(ReduceStage::Final, args, {bytes.data()}, got.data());
    std::array<double, kCodecBlock> bounds{};
    golden::error_bounds(codec, sum, bounds);
    for (std::size_t i = 0; i < kCodecBlock; ++i)
      EXPECT_LE(std::fabs(static_cast<double>(got[i]) - static_cast<double>(sum[i])), bounds[i])
          << text_of(codec) << " element " << i;
  }
}

// A sum that goes round is encoded by every node that it passes, each time with the error of one
// quantization of what it has come to: (1 + e)^nodes - 1 of all largest magnitudes together.
TEST_P(CodedStages, ASumThatGoesRoundARingErrsByNoMoreThanItsBound) {
  constexpr std::uint32_t kNodes = 6;
  std::mt19937_64 random(21);
  std::normal_distribution<float> normal;
  std::vector<std::vector<Block>> inputs(kNodes, std::vector<Block>(200));
  for (auto& blocks : inputs) {
    for (Block& block : blocks) {
      const int power = static_cast<int>(random() % 8);
      for (float& value : block) value = std::ldexp(normal(random), power);
      if (random() % 4 == 0) block[random() % kCodecBlock] *= 100;
    }
  }
  const std::uint64_t count = inputs[0].size() * kCodecBlock;
  for (const Codec codec : kRealCodecs) {
    AllReduceArgs args = AllReduceArgs::among(kNodes, count, DType::Float32);
    args.codec = codec;
    Bytes sum(coded_bytes(codec, count)), own(sum.size());
    run(ReduceStage::Partial, args, {inputs[0].data()}, sum.data());
    for (std::uint32_t node = 1; node < kNodes; ++node) {
      run(ReduceStage::Partial, args, {inputs[node].data()}, own.data());
      run(ReduceStage::Recode, args, {sum.data(), own.data()}, sum.data());
    }
    std::vector<float> got(count);
    run(ReduceStage::Final, args, {sum.data()}, got.data());
    const double most = std::pow(1 + relative_error_of(codec, 1), kNodes) - 1;
    for (std::size_t i = 0; i < inputs[0].size(); ++i) {
      double largest = 0;
      std::array<double, kCodecBlock> want{};
      for (const auto& blocks : inputs) {
        float largest_here = 0;
        for (std::size_t j = 0; j < kCodecBlock; ++j) {
          largest_here = std::max(largest_here, std::fabs(blocks[i][j]));
          want[j] += static_cast<double>(blocks[i][j]);
        }
        largest += static_cast<double>(largest_here);
      }
      for (std::size_t j = 0; j < kCodecBlock; ++j) {
        ASSERT_LE(std::fabs(static_cast<double>(got[i * kCodecBlock + j]) - want[j]),
                  (most + 0x1p-20) * largest)
            << text_of(codec) << " block " << i << " element " << j;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, CodedStages, testing::ValuesIn(runnable_targets()),
                         [](const testing::TestParamInfo<std::int64_t>& tested) {
                           return std::string(hwy::TargetName(tested.param));
                         });

}  // namespace
}  // namespace arcomm
