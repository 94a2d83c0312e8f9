// What is timed on GPUs, what is sent, and which part of a result is looked at: no GPU is needed.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "client/arctl/bench/element.h"
#include "client/arctl/gpu/batches.h"
#include "client/arctl/gpu/inputs.h"
#include "proto/coding.h"

namespace arcomm::arctl {
namespace {

// By doubles, which hold every number that may come.
double reduced_by_hand(ReduceOp op, const std::vector<double>& inputs) {
  double result = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const double next = inputs[i];
    result = op == ReduceOp::Prod  ? result * next
             : op == ReduceOp::Min ? std::min(result, next)
             : op == ReduceOp::Max ? std::max(result, next)
                                   : result + next;
  }
  return op == ReduceOp::Avg ? result / static_cast<double>(inputs.size()) : result;
}

TEST(GpuInputs, AreReducedAsEveryLibraryMust) {
  constexpr std::uint64_t kLooked = 2000;
  for (unsigned type = 0; type < kDTypes; ++type) {
    const auto dtype = static_cast<DType>(type);
    for (unsigned number = 0; number < kReduceOps; ++number) {
      const auto op = static_cast<ReduceOp>(number);
      const int ranks = op == ReduceOp::Sum && size_of(dtype) <= 2 ? 8 : 2;
      std::vector<GpuInputs> all;
      all.reserve(static_cast<std::size_t>(ranks));
      for (Rank rank = 0; rank < ranks; ++rank) all.emplace_back(dtype, op, ranks, rank, 3);
      std::vector<std::byte> result(kLooked * size_of(dtype));
      for (std::uint64_t i = 0; i < kLooked; ++i) {
        std::vector<double> inputs;
        inputs.reserve(all.size());
        for (const GpuInputs& one : all)
          inputs.push_back(decode(dtype, one.mine().data() + i * size_of(dtype)));
        const auto value = static_cast<int>(reduced_by_hand(op, inputs));
        ASSERT_EQ(value, reduced_by_hand(op, inputs)) << "no integer";
        const std::uint64_t bits = encode_small(dtype, value);
        std::memcpy(result.data() + i * size_of(dtype), &bits, size_of(dtype));
        ASSERT_EQ(decode(dtype, result.data() + i * size_of(dtype)), value) << "not exact";
      }
      std::string what;
      EXPECT_EQ(all[0].wrong(result.data(), 0, 0, kLooked, &what), 0u)
          << text_of(dtype) << " " << text_of(op) << ": " << what;
    }
  }
}

TEST(GpuInputs, AllowACodecItsPublishedErrorAndNoMore) {
  constexpr std::uint64_t kCount = 1000;
  const GpuInputs inputs(DType::Float32, ReduceOp::Sum, 2, 0, 1);
  const GpuInputs other(DType::Float32, ReduceOp::Sum, 2, 1, 1);
  std::vector<std::byte> got(kCount * 4);
  const auto wrong_by = [&](double share_of_largest, Codec codec) {
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const double sum = decode(DType::Float32, inputs.mine().data() + i * 4) +
                         decode(DType::Float32, other.mine().data() + i * 4);
      encode(DType::Float32, static_cast<float>(sum + share_of_largest * 65'535), &got[i * 4]);
    }
    return inputs.wrong(got.data(), 0, 0, kCount, nullptr, codec);
  };
  for (const Codec codec : {Codec::Q8, Codec::Q6, Codec::Q4}) {
    const double bound = relative_error_of(codec, 1);
    EXPECT_EQ(wrong_by(0.99 * bound, codec), 0U);
    EXPECT_EQ(wrong_by(-0.99 * bound, codec), 0U);
    EXPECT_EQ(wrong_by(1.1 * bound, codec), kCount);
    EXPECT_EQ(wrong_by(0.5 * bound, Codec::None), kCount);
  }
  EXPECT_EQ(wrong_by(std::numeric_limits<double>::quiet_NaN(), Codec::Q4), kCount);
}

TEST(GpuInputs, SayWhichElementIsWrongFromAnyShiftOn) {
  const GpuInputs inputs(DType::Float32, ReduceOp::Sum, 1, 0, 0);  // a sum of one
  constexpr std::uint64_t kShift = kPeriod - 5, kFirst = 100, kCount = 2 * kPeriod;
  std::vector<std::byte> got(kCount * 4);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::uint64_t place = (kFirst + kShift + i) % kPeriod;
    std::memcpy(got.data() + i * 4, inputs.mine().data() + place * 4, 4);
  }
  std::string what;
  EXPECT_EQ(inputs.wrong(got.data(), kShift, kFirst, kCount, &what), 0u) << what;
  got[std::size_t{4} * 7] ^= std::byte{1};
  got[std::size_t{4} * (kPeriod + 9)] ^= std::byte{1};
  EXPECT_EQ(inputs.wrong(got.data(), kShift, kFirst, kCount, &what), 2u);
  EXPECT_EQ(what.rfind("element 107 is ", 0), 0u) << what;
  EXPECT_GT(inputs.wrong(got.data(), kShift + 1, kFirst, kCount, nullptr), kCount / 2)
      << "another shift must be another input";
}

TEST(GpuInputs, DifferBetweenRanksAndSeeds) {
  const GpuInputs one(DType::Float16, ReduceOp::Sum, 2, 0, 0),
      rank(DType::Float16, ReduceOp::Sum, 2, 1, 0), seed(DType::Float16, ReduceOp::Sum, 2, 0, 1);
  EXPECT_NE(one.mine(), rank.mine());
  EXPECT_NE(one.mine(), seed.mine());
}

TEST(Batches, AreWholeGraphsAndFewerForLargerSizes) {
  std::uint64_t before = ~0ull;
  for (std::uint64_t bytes = 1024; bytes <= (4ull << 30); bytes *= 4) {
    const Batches batches = batches_of(bytes);
    EXPECT_EQ(batches.operations % kChain, 0u) << bytes;
    EXPECT_GE(batches.number, 21u) << bytes;
    EXPECT_LE(std::uint64_t{batches.number} * batches.operations, before) << bytes;
    before = std::uint64_t{batches.number} * batches.operations;
  }
  EXPECT_EQ(whole_chains(1, 10), 10u);
  EXPECT_EQ(whole_chains(20, 10), 20u);
  EXPECT_EQ(whole_chains(0, 10), 0u);
}

TEST(Windows, AreTheWholeResultOrLieInOrderWithin) {
  std::mt19937_64 random;
  const auto whole = windows_of(kWholeBytes / 2, 2, random);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].count, kWholeBytes / 2);
  for (const std::uint64_t element : {1ull, 2ull, 4ull, 8ull}) {
    const std::uint64_t count = (kWholeBytes + 4096) / element;
    const auto windows = windows_of(count, element, random);
    ASSERT_EQ(windows.size(), kWindows);
    std::uint64_t end = 0, bytes = 0;
    for (const Window& window : windows) {
      EXPECT_GE(window.first, end);
      end = window.first + window.count;
      bytes += window.count * element;
    }
    EXPECT_EQ(windows.front().first, 0u);
    EXPECT_EQ(end, count) << "the end is always looked at";
    EXPECT_LE(bytes, kWholeBytes) << "it has to fit where results are looked at";
  }
}

}  // namespace
}  // namespace arcomm::arctl
