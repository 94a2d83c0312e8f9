#include "daemon/plan/network/coding_between_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/plan/codec_words.h"

namespace arcomm {
namespace {

constexpr RanksOnNodes kTwoHosts{.ranks = 2, .nodes = 2};
constexpr RanksOnNodes kTwoGpus{.ranks = 2, .nodes = 2, .on_gpus = true};

constexpr std::uint64_t bits_per_second(std::uint64_t bits) {
  return bits / 8;
}
// Links as they were timed: 40 us to a message.
NetworkPolicy measured(std::uint64_t bytes_per_second) {
  return {.step_bytes =
              std::clamp<std::uint64_t>(bytes_per_second / 25'000, kLeastStepBytes, kMostStepBytes),
          .link_bytes_per_second = bytes_per_second};
}
double gain(Codec codec, DType dtype, std::uint64_t bytes, std::uint64_t bytes_per_second,
            std::uint32_t nodes = 2) {
  return coding_gain(
      {.count = bytes / size_of(dtype), .dtype = dtype, .nodes = nodes, .codec = codec}, false,
      measured(bytes_per_second));
}
Codec chosen(const RanksOnNodes& where, const NetworkPolicy& policy, double decibels,
             std::uint64_t bytes, DType dtype) {
  const LaunchTable table =
      LaunchTable::create(where.ranks, {{}}, coding_rows_between_nodes(where, policy)).value();
  return table.codec_for({.least_snr_db = decibels}, {.bytes = bytes, .dtype = dtype});
}

// tests/bench/README.md, "Codecs between nodes": float32 between two hosts, how many times as fast
// as without a codec. Where the link takes the time the model says what it was.
TEST(CodingBetweenNodes, OnASlowLinkACodecGainsWhatItSendsLess) {
  constexpr std::uint64_t kSlow = bits_per_second(1'000'000'000);
  for (const auto& [codec, was] : {std::pair{Codec::Fp8, 3.75},
                                   {Codec::Q8, 3.74},
                                   {Codec::Q6, 4.90},
                                   {Codec::Q4, 6.91},
                                   {Codec::Q4Rotated, 6.92}})
    EXPECT_NEAR(gain(codec, DType::Float32, 16 << 20, kSlow), was, was / 20) << text_of(codec);
  EXPECT_GT(gain(Codec::Q4, DType::Float32, 64 << 10, kSlow), kLeastCodingGain);
}

// And where coding does, it is on the safe side of it.
TEST(CodingBetweenNodes, OnAFastLinkItGainsNoMoreThanWasMeasured) {
  constexpr std::uint64_t kFast = bits_per_second(10'000'000'000);
  EXPECT_LT(gain(Codec::Fp8, DType::Float32, 64 << 10, kFast), kLeastCodingGain);  // was 0.82
  EXPECT_NEAR(gain(Codec::Q4, DType::Float32, 16 << 20, kFast), 1.4, 0.2);         // was 1.62
  EXPECT_LT(gain(Codec::Q6, DType::Float32, 16 << 20, kFast), 1.1);                // was 1.04
  EXPECT_LT(gain(Codec::Q4Rotated, DType::Float32, 16 << 20, kFast), 1.1);         // was 0.98
  EXPECT_LT(gain(Codec::Q4, DType::BFloat16, 16 << 20, kFast), 1);  // were 0.5 to 0.8
}

TEST(CodingBetweenNodes, NothingIsKnownWhereNothingWasMeasured) {
  EXPECT_EQ(coding_gain({.count = 1 << 20, .nodes = 2, .codec = Codec::Q4}, false, {}), 0);
  EXPECT_TRUE(coding_rows_between_nodes(kTwoHosts, {}).empty());
  EXPECT_NE(why_no_codec_pays(kTwoHosts, {}).find("arctl tune --network"), std::string::npos);
}

TEST(CodingBetweenNodes, HostsTakeTheFastestThatHonoursTheClassOnASlowLink) {
  const NetworkPolicy slow = measured(117'000'000);
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    EXPECT_EQ(chosen(kTwoHosts, slow, 20, 1 << 20, dtype), Codec::Q4);
    EXPECT_EQ(chosen(kTwoHosts, slow, 30, 1 << 20, dtype), Codec::Q6);
    EXPECT_EQ(chosen(kTwoHosts, slow, 32.4, 1 << 20, dtype), Codec::Q6);
    EXPECT_EQ(chosen(kTwoHosts, slow, 40, 1 << 20, dtype), Codec::Q8);
    EXPECT_EQ(chosen(kTwoHosts, slow, 20, kLeastCodedBytes - 4, dtype), Codec::None);
    EXPECT_EQ(chosen(kTwoHosts, slow, 80, 1 << 20, dtype), Codec::None);
  }
  EXPECT_EQ(chosen(kTwoHosts, slow, 20, 1 << 20, DType::Int32), Codec::None);
}

// It would be quantized as often as there are nodes.
TEST(CodingBetweenNodes, NoErrorClassGoesAroundARing) {
  NetworkPolicy slow = measured(100'000'000);
  slow.algorithm = NetAlgorithm::Ring;
  EXPECT_FALSE(coding_rows_between_nodes(kTwoHosts, slow).empty());  // direct stands in for it
  slow.order = NetOrder::OfRing;
  EXPECT_TRUE(coding_rows_between_nodes(kTwoHosts, slow).empty());
  EXPECT_NE(why_no_codec_pays(kTwoHosts, slow).find("around a ring"), std::string::npos);
  EXPECT_FALSE(coding_rows_between_nodes(kTwoGpus, slow).empty());  // which take the exchange
}

TEST(CodingBetweenNodes, HostsTakeNoneOnAFastLinkAndFewerTheFasterItIs) {
  std::size_t before = coding_rows_between_nodes(kTwoHosts, measured(100'000'000)).size();
  EXPECT_EQ(before, kRealCodecs.size());
  const NetworkPolicy ten = measured(bits_per_second(10'000'000'000));
  EXPECT_EQ(chosen(kTwoHosts, ten, 20, 16 << 20, DType::Float32), Codec::Q4);
  EXPECT_EQ(chosen(kTwoHosts, ten, 20, 64 << 10, DType::Float32), Codec::None);
  EXPECT_EQ(chosen(kTwoHosts, ten, 20, 16 << 20, DType::BFloat16), Codec::None);
  const NetworkPolicy fast = measured(2'000'000'000);
  EXPECT_TRUE(coding_rows_between_nodes(kTwoHosts, fast).empty());
  EXPECT_NE(why_no_codec_pays(kTwoHosts, fast).find("at the 2 GB/s"), std::string::npos);
}

// By direct a result is encoded once more, which the class must allow.
TEST(CodingBetweenNodes, HostsThatEncodeTwiceTellSo) {
  const RanksOnNodes four{.ranks = 4, .nodes = 4};
  const NetworkPolicy slow = measured(117'000'000);
  for (const CodingRow& row : coding_rows_between_nodes(kTwoHosts, slow)) EXPECT_EQ(row.times, 1);
  for (const CodingRow& row : coding_rows_between_nodes(four, slow)) EXPECT_EQ(row.times, 2);
  NetworkPolicy direct = slow;
  direct.algorithm = NetAlgorithm::Direct;
  for (const CodingRow& row : coding_rows_between_nodes(kTwoHosts, direct)) EXPECT_EQ(row.times, 2);
  NetworkPolicy exchange = slow;
  exchange.algorithm = NetAlgorithm::Exchange;
  for (const CodingRow& row : coding_rows_between_nodes(four, exchange)) EXPECT_EQ(row.times, 1);
  EXPECT_EQ(chosen(kTwoHosts, slow, 31, 1 << 20, DType::Float32), Codec::Q6);
  EXPECT_EQ(chosen(four, slow, 31, 1 << 20, DType::Float32), Codec::Q8) << "q6 keeps 30.3 dB then";
}

TEST(CodingBetweenNodes, WhateverAPeerSaysItMeasuredIsANumber) {
  for (const std::uint64_t said : {std::uint64_t{1}, ~std::uint64_t{0}}) {
    for (const std::uint32_t nodes : {2u, 3u, 17u, 64u}) {
      for (const bool on_gpus : {false, true}) {
        const NetworkPolicy policy{.algorithm = NetAlgorithm::Exchange,
                                   .step_bytes = kMostStepBytes,
                                   .link_bytes_per_second = said};
        const std::vector<CodingRow> rows =
            coding_rows_between_nodes({.ranks = 64, .nodes = nodes, .on_gpus = on_gpus}, policy);
        if (said > 1) {
          EXPECT_TRUE(rows.empty()) << nodes;
        }
        for (const CodingRow& row : rows) EXPECT_GE(row.least_bytes, kLeastCodedBytes);
      }
    }
  }
}

// Of a step so long that even much goes by exchange, what is longer still goes by direct.
TEST(CodingBetweenNodes, HowOftenItEncodesIsThatOfTheLongest) {
  NetworkPolicy far = measured(50'000'000);
  far.step_bytes = kMostStepBytes;
  for (const CodingRow& row : coding_rows_between_nodes({.ranks = 3, .nodes = 3}, far))
    EXPECT_EQ(row.times, 2);
}

// tests/gpu/bench/README.md: faster with every codec that was timed from 64 KB on.
TEST(CodingBetweenNodes, GpusTakeTheFastestFrom64KibOn) {
  const std::vector<CodingRow> rows = coding_rows_between_nodes(kTwoGpus, {});
  ASSERT_EQ(rows.size(), kRealCodecs.size());
  for (const CodingRow& row : rows) {
    EXPECT_EQ(row.least_bytes, kLeastCodedBytes) << text_of(row.codec);
    EXPECT_EQ(row.times, 1);
  }
  EXPECT_EQ(chosen(kTwoGpus, {}, 20, 64 << 10, DType::BFloat16), Codec::Q4);
  EXPECT_EQ(chosen(kTwoGpus, {}, 30, 64 << 10, DType::Float32), Codec::Q6);
  EXPECT_EQ(chosen(kTwoGpus, {}, 40, 1 << 30, DType::Float16), Codec::Q8);
  EXPECT_EQ(chosen(kTwoGpus, {}, 20, 1 << 10, DType::BFloat16), Codec::None);
}

TEST(CodingBetweenNodes, GpusTakeNoneOnALinkAsFastAsTheyWereSeenToCode) {
  EXPECT_TRUE(coding_rows_between_nodes(kTwoGpus, measured(60'000'000'000)).empty());
  EXPECT_EQ(chosen(kTwoGpus, measured(9'000'000'000), 20, 64 << 20, DType::BFloat16), Codec::Q4);
}

TEST(CodingBetweenNodes, GpusTakeNoneWhereANodeAllowsNoneOrGoesByOtherRules) {
  const NetworkPolicy off{.gpu_codecs = false, .no_gpu_codecs_on = "node-b"};
  EXPECT_TRUE(coding_rows_between_nodes(kTwoGpus, off).empty());
  EXPECT_NE(why_no_codec_pays(kTwoGpus, off).find("node node-b does not allow codecs"),
            std::string::npos);
  NetworkPolicy other = measured(117'000'000);
  other.coding_rules = kCodingRules + 1;
  for (const RanksOnNodes& where : {kTwoHosts, kTwoGpus}) {
    EXPECT_TRUE(coding_rows_between_nodes(where, other).empty());
    EXPECT_NE(why_no_codec_pays(where, other).find("several releases"), std::string::npos);
  }
  NetworkPolicy hosts = measured(117'000'000);
  hosts.gpu_codecs = false;
  EXPECT_FALSE(coding_rows_between_nodes(kTwoHosts, hosts).empty()) << "it is said of GPUs";
}

}  // namespace
}  // namespace arcomm
