// How much of a signal is left between two ranks, each of which quantizes once. The floors are what
// was found for these formats before they were built, less 0.3 dB.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "kernels/codec/golden.h"
#include "tests/unit/kernels/codec_samples.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kElements = 1 << 19;
constexpr std::uint64_t kChannels = 1024;

using Data = std::vector<float>;

Data gaussian(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Data data(kElements);
  for (float& value : data) value = normal(random);
  return data;
}

Data heavy_tailed(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::student_t_distribution<float> student(3);
  Data data(kElements);
  for (float& value : data) value = student(random);
  return data;
}

constexpr std::uint64_t kOutlier = 77;  // the channel that is 60 times as large

Data with_outliers(std::uint64_t seed) {
  Data data = gaussian(seed);
  for (std::uint64_t i = kOutlier; i < kElements; i += kChannels) data[i] *= 60;
  return data;
}

bool is_any(std::uint64_t) {
  return true;
}
bool is_beside_an_outlier(std::uint64_t i) {
  const std::uint64_t channel = i % kChannels;
  return channel / kCodecBlock == kOutlier / kCodecBlock && channel != kOutlier;
}

// In dB, of the sum of two ranks' data, over the elements that count.
double signal_over_noise(Codec codec, const Data& first, const Data& second,
                         const std::function<bool(std::uint64_t)>& counts) {
  double signal = 0, noise = 0;
  for (std::uint64_t at = 0; at < kElements; at += kCodecBlock) {
    std::array<Block, 2> decoded{};
    golden::round_trip(codec, golden::Values(&first[at], kCodecBlock), decoded[0]);
    golden::round_trip(codec, golden::Values(&second[at], kCodecBlock), decoded[1]);
    for (std::uint64_t i = 0; i < kCodecBlock; ++i) {
      if (!counts(at + i)) continue;
      const double exact = double{first[at + i]} + double{second[at + i]};
      const double off = double{decoded[0][i]} + double{decoded[1][i]} - exact;
      signal += exact * exact;
      noise += off * off;
    }
  }
  return 10 * std::log10(signal / noise);
}

struct Floor {
  Codec codec;
  double decibels;
};

void expect_above(std::initializer_list<Floor> floors, const Data& first, const Data& second,
                  const std::function<bool(std::uint64_t)>& counts = is_any) {
  for (const Floor& floor : floors) {
    const double found = signal_over_noise(floor.codec, first, second, counts);
    EXPECT_GT(found, floor.decibels - 0.3) << text_of(floor.codec);
    testing::Test::RecordProperty(std::string(text_of(floor.codec)), std::to_string(found));
  }
}

TEST(CodecAccuracy, OfGaussianData) {
  expect_above({{Codec::Fp8, 32.4},
                {Codec::Q8, 45.5},
                {Codec::Q6, 33.5},
                {Codec::Q4, 21.3},
                {Codec::Q8Rotated, 45.5},
                {Codec::Q6Rotated, 33.5},
                {Codec::Q4Rotated, 21.3}},
               gaussian(1), gaussian(2));
}

TEST(CodecAccuracy, OfHeavyTails) {
  expect_above({{Codec::Fp8, 34.2},
                {Codec::Q8, 41.5},
                {Codec::Q6, 29.5},
                {Codec::Q4, 17.9},
                {Codec::Q8Rotated, 41.5},
                {Codec::Q6Rotated, 29.5},
                {Codec::Q4Rotated, 17.9}},
               heavy_tailed(3), heavy_tailed(4));
}

TEST(CodecAccuracy, BesideOutliersOfWhichRotationTakesTheHarm) {
  expect_above({{Codec::Fp8, 31.6},
                {Codec::Q8, 17.5},
                {Codec::Q6, 6.4},
                {Codec::Q4, 1.4},
                {Codec::Q8Rotated, 31.3},
                {Codec::Q6Rotated, 19.1},
                {Codec::Q4Rotated, 6.2}},
               with_outliers(5), with_outliers(6), is_beside_an_outlier);
}

}  // namespace
}  // namespace arcomm
