#include "client/arctl/bench/bench_case.h"

#include <gtest/gtest.h>

namespace arcomm::arctl {
namespace {

TEST(BenchCase, CountsBandwidthAsNcclTestsDo) {
  const Bandwidth width = bandwidth(1'000'000, 1000, 4);  // 1 MB in 1 ms
  EXPECT_DOUBLE_EQ(width.algorithm_gb_s, 1.0);
  EXPECT_DOUBLE_EQ(width.bus_gb_s, 1.5);
  EXPECT_EQ(bandwidth(1000, 0, 2).bus_gb_s, 0);
}

TEST(BenchCase, TakesPercentilesThatWereMeasured) {
  Measured measured;
  measured.samples_us = {5, 1, 4, 2, 3};
  EXPECT_EQ(measured.percentile_us(0), 1);
  EXPECT_EQ(measured.percentile_us(0.5), 3);
  EXPECT_EQ(measured.percentile_us(0.99), 5);
  EXPECT_EQ(measured.percentile_us(1), 5);
  EXPECT_EQ(Measured().percentile_us(0.5), 0);
}

TEST(BenchCase, RepeatsSmallOnesMore) {
  EXPECT_EQ(default_iterations(0), 1000u);
  EXPECT_EQ(default_iterations(1 << 20), 64u);
  EXPECT_EQ(default_iterations(1ull << 30), 2u);
  EXPECT_EQ(default_warmup(0), 4096u);
  EXPECT_EQ(default_warmup(64 << 10), 64u);
  EXPECT_EQ(default_warmup(1ull << 30), 5u);
}

TEST(BenchCase, KnowsTypesByBothSpellings) {
  EXPECT_EQ(parse_dtype("float"), DType::Float32);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::BFloat16);
  EXPECT_EQ(parse_dtype("uint64"), DType::Uint64);
  EXPECT_EQ(parse_dtype("float8"), std::nullopt);
  EXPECT_EQ(parse_op("avg"), ReduceOp::Avg);
  EXPECT_EQ(parse_op("xor"), std::nullopt);
}

}  // namespace
}  // namespace arcomm::arctl
