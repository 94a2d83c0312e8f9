#include "client/arctl/bench/pattern.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "client/arctl/bench/element.h"

namespace arcomm::arctl {
namespace {

// Reduces by way of double, which is exact for the pattern's small integers, and encodes what is an
// integer.
std::vector<std::byte> reduce(DType dtype, ReduceOp op, int ranks, std::uint64_t count) {
  const std::size_t element = size_of(dtype);
  const Pattern pattern(dtype, op, ranks);
  std::vector<std::vector<std::byte>> inputs;
  for (Rank rank = 0; rank < ranks; ++rank) {
    inputs.emplace_back(count * element);
    pattern.fill(inputs.back().data(), count, rank);
  }
  std::vector<std::byte> out(count * element);
  for (std::uint64_t i = 0; i < count; ++i) {
    double result = decode(dtype, inputs[0].data() + i * element);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      const double other = decode(dtype, inputs[rank].data() + i * element);
      if (op == ReduceOp::Sum || op == ReduceOp::Avg) result += other;
      if (op == ReduceOp::Prod) result *= other;
      if (op == ReduceOp::Min) result = std::min(result, other);
      if (op == ReduceOp::Max) result = std::max(result, other);
    }
    if (op == ReduceOp::Avg) result = std::floor(result / ranks);
    const std::uint64_t bits = encode_small(dtype, static_cast<int>(result));
    std::memcpy(out.data() + i * element, &bits, element);
  }
  return out;
}

TEST(Pattern, AcceptsTheRightResultOfEveryTypeAndOperation) {
  for (const int ranks : {1, 2, 3, 4, 64}) {
    for (unsigned dtype = 0; dtype < kDTypes; ++dtype) {
      for (unsigned op = 0; op < kReduceOps; ++op) {
        const auto type = static_cast<DType>(dtype);
        const auto operation = static_cast<ReduceOp>(op);
        if (operation == ReduceOp::Avg && dtype <= static_cast<unsigned>(DType::Float64))
          continue;  // next test
        const std::vector<std::byte> out = reduce(type, operation, ranks, 100);
        EXPECT_EQ(Pattern(type, operation, ranks).wrong(out.data(), 100), 0u)
            << type << ' ' << operation << " of " << ranks;
      }
    }
  }
}

TEST(Pattern, AcceptsAnAverageWithinARounding) {
  const Pattern pattern(DType::Float32, ReduceOp::Avg, 3);
  std::vector<float> sum(50, 0.0f), input(50);
  for (Rank rank = 0; rank < 3; ++rank) {
    pattern.fill(reinterpret_cast<std::byte*>(input.data()), 50, rank);
    for (std::size_t i = 0; i < 50; ++i) sum[i] += input[i];
  }
  for (float& number : sum) number = std::nextafter(number / 3.0f, 100.0f);
  EXPECT_EQ(pattern.wrong(reinterpret_cast<std::byte*>(sum.data()), 50), 0u);
  for (float& number : sum) number *= 1.001f;
  EXPECT_GT(pattern.wrong(reinterpret_cast<std::byte*>(sum.data()), 50), 25u);
}

TEST(Pattern, AcceptsWithACodecWhatItsBoundAllowsAndNoMore) {
  for (const Codec codec : {Codec::Fp8, Codec::Q8, Codec::Q6, Codec::Q4, Codec::Q8Rotated}) {
    const Pattern pattern(DType::Float32, ReduceOp::Sum, 2, codec);
    std::vector<float> sum(50, 0.0f), input(50);
    for (Rank rank = 0; rank < 2; ++rank) {
      pattern.fill(reinterpret_cast<std::byte*>(input.data()), 50, rank);
      for (std::size_t i = 0; i < 50; ++i) sum[i] += input[i];
    }
    const auto wrong = [&] {
      return pattern.wrong(reinterpret_cast<const std::byte*>(sum.data()), 50);
    };
    for (float& number : sum) number *= 1 + 0x1p-10f;
    EXPECT_EQ(wrong(), 0u) << text_of(codec);
    for (float& number : sum) number += 1.5f;
    EXPECT_EQ(wrong(), 50u) << text_of(codec);
    sum.assign(50, std::nanf(""));
    EXPECT_EQ(wrong(), 50u) << text_of(codec);
  }
}

TEST(Pattern, CountsEveryWrongElement) {
  std::vector<std::byte> out = reduce(DType::Int32, ReduceOp::Sum, 4, 1000);
  for (const std::size_t i : {0u, 17u, 999u}) out[i * 4] ^= std::byte{1};
  EXPECT_EQ(Pattern(DType::Int32, ReduceOp::Sum, 4).wrong(out.data(), 1000), 3u);
}

TEST(Pattern, NoticesDataThatMovedByOneElement) {
  std::vector<std::byte> out = reduce(DType::Float32, ReduceOp::Sum, 2, 1000);
  std::memmove(out.data(), out.data() + 4, out.size() - 4);
  EXPECT_GT(Pattern(DType::Float32, ReduceOp::Sum, 2).wrong(out.data(), 1000), 200u);
}

TEST(Pattern, NoticesARankThatIsMissing) {
  const Pattern pattern(DType::Float32, ReduceOp::Sum, 2);
  std::vector<float> input(1000);
  pattern.fill(reinterpret_cast<std::byte*>(input.data()), 1000, 0);
  EXPECT_GT(pattern.wrong(reinterpret_cast<std::byte*>(input.data()), 1000), 200u);
}

TEST(Pattern, EncodesSmallIntegersExactlyInEveryType) {
  for (unsigned dtype = 0; dtype < kDTypes; ++dtype) {
    const auto type = static_cast<DType>(dtype);
    for (int number = 0; number <= 127; ++number) {
      const std::uint64_t bits = encode_small(type, number);
      EXPECT_EQ(decode(type, reinterpret_cast<const std::byte*>(&bits)), number) << type;
    }
  }
}

TEST(Pattern, FindsWhatIsNotZero) {
  std::vector<std::byte> zeros(64);
  EXPECT_EQ(nonzero(zeros.data(), 16, DType::Float32), 0u);
  zeros[9] = std::byte{1};
  EXPECT_EQ(nonzero(zeros.data(), 16, DType::Float32), 1u);
}

}  // namespace
}  // namespace arcomm::arctl
