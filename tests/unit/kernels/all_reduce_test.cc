#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "kernels/host/element.h"
#include "kernels/host/launch.h"
#include "kernels/host/reference.h"
#include "tests/unit/kernels/on_target.h"
#include "tests/unit/kernels/sample_operation.h"

namespace arcomm {
namespace {

TEST_P(OnTarget, EqualsTheReferenceBitForBit) {
  std::mt19937_64 random(20261121);
  for (const DType dtype : kEveryType) {
    for (const ReduceOp op : kEveryOp) {
      for (int i = 0; i < 60; ++i) {
        const std::string difference =
            SampleOperation(random_shape(dtype, op, random)).run_and_compare();
        ASSERT_EQ(difference, "");
      }
    }
  }
}

TEST_P(OnTarget, EveryRankCountFromOneToSixtyFourEqualsTheReference) {
  for (const DType dtype : kEveryType) {
    for (std::uint32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
      const Shape shape{.dtype = dtype,
                        .op = ReduceOp::Sum,
                        .ranks = ranks,
                        .count = 150,
                        .first = 0,
                        .last = 150,
                        .in_place = ranks % 2 == 0,
                        .seed = ranks};
      ASSERT_EQ(SampleOperation(shape).run_and_compare(), "");
    }
  }
}

// As between nodes: more inputs than outputs, or fewer, and a world larger than both.
TEST_P(OnTarget, AnyInputsGoToAnyOutputsAndAvgDividesByTheWorld) {
  for (const DType dtype : kEveryType) {
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg}) {
      for (const std::uint32_t outputs : {1u, 2u, 3u, 5u}) {
        for (const std::uint32_t inputs : {1u, 3u, 4u}) {
          const Shape shape{.dtype = dtype,
                            .op = op,
                            .ranks = inputs,
                            .outputs = outputs,
                            .divisor = 200,  // beyond int8
                            .count = 150,
                            .last = 150,
                            .in_place = outputs % 2 == 0,
                            .non_temporal = outputs == 3,
                            .seed = outputs};
          ASSERT_EQ(SampleOperation(shape).run_and_compare(), "");
        }
      }
    }
  }
}

TEST_P(OnTarget, ManyBlocksEqualTheReference) {
  for (const DType dtype : kEveryType) {
    for (const bool non_temporal : {false, true}) {
      const Shape shape{.dtype = dtype,
                        .op = ReduceOp::Avg,
                        .ranks = 4,
                        .count = 40'003,
                        .first = 0,
                        .last = 40'003,
                        .non_temporal = non_temporal,
                        .seed = 7};
      ASSERT_EQ(SampleOperation(shape).run_and_compare(), "");
    }
  }
}

// One rank with prod changes nothing but the conversion there and back.
TEST_P(OnTarget, ConvertsAllHalvesThereAndBack) {
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    std::vector<std::uint16_t> in(65536), out(65536);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(i);
    AllReduceArgs args = AllReduceArgs::among(1, in.size(), dtype, ReduceOp::Prod);
    args.inputs[0] = in.data();
    args.outputs[0] = out.data();
    all_reduce_range(inline_choice(), args, 0, args.count);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const bool half = dtype == DType::Float16;
      const std::uint32_t exponent = half ? 0x7c00 : 0x7f80;
      const bool nan = (in[i] & exponent) == exponent && (in[i] & 0x7fffU & ~exponent) != 0;
      ASSERT_EQ(out[i], nan ? (half ? kFloat16Nan : kBFloat16Nan) : in[i]) << dtype << " " << i;
    }
  }
}

// The sum of two halves takes every path of the rounding: all pairs of one operand with all of the
// other's exponents.
TEST_P(OnTarget, RoundsSumsOfHalvesAsTheReference) {
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    std::vector<std::uint16_t> all(65536), other(65536), got(65536), want(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    for (std::uint32_t step = 0; step < 64; ++step) {
      for (std::size_t i = 0; i < other.size(); ++i) {
        other[i] = static_cast<std::uint16_t>(i * 40503U + std::size_t{step} * 1021U);
      }
      AllReduceArgs args = AllReduceArgs::among(2, all.size(), dtype);
      std::vector<std::uint16_t> second(65536);
      args.inputs[0] = all.data();
      args.inputs[1] = other.data();
      args.outputs[0] = got.data();
      args.outputs[1] = second.data();
      all_reduce_range(inline_choice(), args, 0, args.count);
      args.outputs[0] = want.data();
      reference::all_reduce_range(args, 0, args.count);
      ASSERT_EQ(got, want) << dtype << " step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, OnTarget, testing::ValuesIn(runnable_targets()),
                         [](const testing::TestParamInfo<std::int64_t>& tested) {
                           return std::string(hwy::TargetName(tested.param));
                         });

TEST(AllReduce, RunsOnMoreThanTheScalarTarget) {
  EXPECT_GE(runnable_targets().size(), 2U);
}

// Two ranks of one element each.
template <typename T>
T combined(DType dtype, ReduceOp op, T first, T second) {
  AllReduceArgs args = AllReduceArgs::among(2, 1, dtype, op);
  args.inputs[0] = args.outputs[0] = &first;
  args.inputs[1] = args.outputs[1] = &second;
  all_reduce_range(inline_choice(), args, 0, 1);
  using Bits = std::array<std::byte, sizeof(T)>;  // of a NaN, too
  EXPECT_EQ(std::bit_cast<Bits>(first), std::bit_cast<Bits>(second)) << "ranks differ";
  return first;
}

TEST(AllReduce, SumsIntegersModuloTheirSize) {
  EXPECT_EQ(combined<std::int8_t>(DType::Int8, ReduceOp::Sum, 127, 1), -128);
  EXPECT_EQ(combined<std::uint32_t>(DType::Uint32, ReduceOp::Sum, ~0U, 2), 1U);
  EXPECT_EQ(combined<std::int64_t>(DType::Int64, ReduceOp::Prod, std::int64_t{1} << 62, 4), 0);
}

TEST(AllReduce, AveragesIntegersTowardsZeroAfterWrapping) {
  EXPECT_EQ(combined<std::int32_t>(DType::Int32, ReduceOp::Avg, -3, -4), -3);
  EXPECT_EQ(combined<std::int32_t>(DType::Int32, ReduceOp::Avg, 3, 4), 3);
  EXPECT_EQ(combined<std::int8_t>(DType::Int8, ReduceOp::Avg, 127, 1), -64);
}

TEST(AllReduce, ComparesUnsignedAsUnsigned) {
  EXPECT_EQ(combined<std::uint8_t>(DType::Uint8, ReduceOp::Max, 200, 100), 200);
  EXPECT_EQ(combined<std::uint64_t>(DType::Uint64, ReduceOp::Min, ~std::uint64_t{0}, 5), 5U);
  EXPECT_EQ(combined<std::int64_t>(DType::Int64, ReduceOp::Min, -1, 5), -1);
}

TEST(AllReduce, MinAndMaxPropagateNaNFromAnyRank) {
  const float nan = std::bit_cast<float>(0xffc12345U);
  for (const ReduceOp op : {ReduceOp::Min, ReduceOp::Max}) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(combined(DType::Float32, op, nan, 1.0F)), 0x7fc00000U);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(combined(DType::Float32, op, 1.0F, nan)), 0x7fc00000U);
  }
}

TEST(AllReduce, MinOfZerosKeepsTheLowestRanksSign) {
  EXPECT_TRUE(std::signbit(combined(DType::Float32, ReduceOp::Min, -0.0F, 0.0F)));
  EXPECT_FALSE(std::signbit(combined(DType::Float32, ReduceOp::Min, 0.0F, -0.0F)));
}

TEST(AllReduce, InfinityMinusInfinityIsTheCanonicalNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(
      std::bit_cast<std::uint32_t>(combined(DType::Float32, ReduceOp::Sum, infinity, -infinity)),
      0x7fc00000U);
}

// 2048 + 1 is a tie in float16; summed in float16 step by step, the ones would vanish.
TEST(AllReduce, AccumulatesHalvesInFloat32AndRoundsOnce) {
  std::uint16_t values[4] = {float16_from_float(2048), float16_from_float(1), float16_from_float(1),
                             float16_from_float(1)};
  AllReduceArgs args = AllReduceArgs::among(4, 1, DType::Float16);
  for (std::uint32_t r = 0; r < 4; ++r) args.inputs[r] = args.outputs[r] = &values[r];
  all_reduce_range(inline_choice(), args, 0, 1);
  EXPECT_EQ(float_from_float16(values[3]),
            2052.0F);  // 2051 is a tie between 2050 and 2052: to even
}

TEST(AllReduce, ReachesElementsBeyondTwoToTheThirtyTwoBytes) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 31) + 4096;
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 31) - 5, kLast = kFirst + 200;
  std::int32_t* ranks[2];
  for (auto& rank : ranks) {  // 8 GiB of addresses, a few pages of memory
    void* base = ::mmap(nullptr, kCount * 4, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(base, MAP_FAILED);
    rank = static_cast<std::int32_t*>(base);
  }
  for (std::uint64_t i = kFirst - 1; i <= kLast; ++i) {
    ranks[0][i] = static_cast<std::int32_t>(i - kFirst);
    ranks[1][i] = 1000;
  }
  AllReduceArgs args = AllReduceArgs::among(2, kCount, DType::Int32);
  for (int r = 0; r < 2; ++r) args.inputs[r] = args.outputs[r] = ranks[r];
  all_reduce_range(inline_choice(), args, kFirst, kLast);
  for (std::uint64_t i = kFirst; i < kLast; ++i) {
    ASSERT_EQ(ranks[1][i], static_cast<std::int32_t>(i - kFirst) + 1000);
    ASSERT_EQ(ranks[0][i], ranks[1][i]);
  }
  EXPECT_EQ(ranks[0][kLast], 200);
  EXPECT_EQ(ranks[1][kFirst - 1], 1000);
  for (auto* rank : ranks) ::munmap(rank, kCount * 4);
}

}  // namespace
}  // namespace arcomm
