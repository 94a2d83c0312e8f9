// What is published of codecs holds of the golden codec, and error classes choose by it.
#include "proto/coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/codec/golden.h"
#include "proto/gpu/launch_table.h"
#include "tests/unit/kernels/codec_samples.h"

namespace arcomm {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Over the block's largest magnitude; 0 of a block that counts as zeros, or that may overflow.
double greatest_bound(Codec codec, const Block& block) {
  double largest = 0;
  for (const float value : block) largest = std::max(largest, std::fabs(double{value}));
  if (largest < kLeastCodedMagnitude) return 0;
  std::array<double, kCodecBlock> bounds{};
  golden::error_bounds(codec, block, bounds);
  const double greatest = *std::ranges::max_element(bounds);
  return std::isfinite(greatest) ? greatest / largest : 0;
}

TEST(CodecBounds, TheRelativeErrorIsTheMostThatAnyBlockOfTheGoldenCodecHas) {
  std::vector<Block> blocks = adversarial_blocks();
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) blocks.push_back(random_block(random));
  for (const Codec codec : kRealCodecs) {
    double most = 0;
    for (const Block& block : blocks) most = std::max(most, greatest_bound(codec, block));
    EXPECT_LE(most, bound_of(codec).relative_error) << text_of(codec);
    EXPECT_GT(most, 0.9 * bound_of(codec).relative_error) << text_of(codec) << ": no loose bound";
  }
}

TEST(CodecBounds, TheSignalOverNoiseIsTheFormulasCutToTenths) {
  constexpr double kLargestOf32Squared = 5.71;
  for (const Codec codec : kRealCodecs) {
    const CodecBound bound = bound_of(codec);
    const auto levels = static_cast<double>(format_of(codec).levels);
    const double ratio =
        levels == 0 ? 12 * 64 * 7.0 / 3 : 12 * levels * levels / kLargestOf32Squared;
    EXPECT_LE(bound.snr_db, 10 * std::log10(ratio)) << text_of(codec);
    EXPECT_GT(bound.snr_db, 10 * std::log10(ratio) - 0.15) << text_of(codec);
  }
}

TEST(CodecBounds, ASecondQuantizationCostsThreeDecibelsAndAsMuchErrorAgain) {
  EXPECT_NEAR(snr_db_of(Codec::Q6, 2), snr_db_of(Codec::Q6, 1) - 3.01, 1e-9);
  const double once = relative_error_of(Codec::Q6, 1);
  EXPECT_NEAR(relative_error_of(Codec::Q6, 2), once + once * (1 + once), 1e-12);
}

// The library judges an error class by the bounds that it was built with, and the daemon by its
// own: where they differ, ranks and daemon would choose different codecs.
TEST(CodecBounds, AreThoseOfTheirLaunchTableVersion) {
  constexpr std::uint32_t kVersion = 9;
  struct Bound {
    std::uint32_t half_bits;
    double snr_db, relative_error;
  };
  constexpr std::array<Bound, kCodecs - 1> kOfVersion = {{{17, 32.4, 0.062744140625},
                                                          {17, 45.3, 0.01171875},
                                                          {13, 33.3, 0.03515625},
                                                          {9, 21.2, 0.12890625},
                                                          {17, 45.3, 0.1255035400390625},
                                                          {13, 33.3, 0.5019683837890625},
                                                          {9, 21.2, 2.0078277587890625}}};
  ASSERT_EQ(kLaunchTableVersion, kVersion) << "write down here what the bounds are now";
  for (std::size_t i = 0; i < kOfVersion.size(); ++i) {
    const CodecBound bound = bound_of(kRealCodecs[i]);
    EXPECT_TRUE(bound.half_bits == kOfVersion[i].half_bits &&
                bound.snr_db == kOfVersion[i].snr_db &&
                bound.relative_error == kOfVersion[i].relative_error)
        << text_of(kRealCodecs[i]) << " has other bounds than libraries of this version judge by: "
        << "raise kLaunchTableVersion, and write them down here";
  }
}

TEST(ErrorClass, IsHonouredByWhatIsPublished) {
  EXPECT_TRUE(honours(Codec::Q6, {.least_snr_db = 30}, 1));
  EXPECT_FALSE(honours(Codec::Q6, {.least_snr_db = 31}, 2)) << "two quantizations";
  EXPECT_FALSE(honours(Codec::Q4, {.least_snr_db = 30}, 1));
  EXPECT_TRUE(honours(Codec::Q4, {.most_relative_error = 0.13}, 1));
  EXPECT_FALSE(honours(Codec::Q4, {.least_snr_db = 30, .most_relative_error = 0.13}, 1)) << "both";
  EXPECT_TRUE(honours(Codec::None, {.least_snr_db = 300, .most_relative_error = 1e-9}, 1));
}

TEST(Coding, SaysWhatIsWrongWithIt) {
  EXPECT_EQ(find_fault(Coding{}), nullptr);
  EXPECT_EQ(find_fault(Coding{.codec = Codec::Q8}), nullptr);
  EXPECT_EQ(find_fault(Coding{.error_class = {30, 0.1}}), nullptr);
  EXPECT_NE(find_fault(Coding{.codec = static_cast<Codec>(kCodecs)}), nullptr);
  EXPECT_NE(find_fault(Coding{.codec = Codec::Q8, .error_class = {30, 0}}), nullptr);
  for (const double wrong : {-1.0, kNan, std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(find_fault(Coding{.error_class = {wrong, 0}}), nullptr) << wrong;
    EXPECT_NE(find_fault(Coding{.error_class = {0, wrong}}), nullptr) << wrong;
  }
}

TEST(Coding, IsReadByPeople) {
  EXPECT_EQ(to_string(Coding{}), "none");
  EXPECT_EQ(to_string(Coding{.codec = Codec::Q6Rotated}), "q6_rotated");
  EXPECT_EQ(to_string(Coding{.error_class = {30.5, 0}}), "at least 30.5 dB");
  EXPECT_EQ(to_string(Coding{.error_class = {30, 0.01}}),
            "at least 30 dB and at most 0.01 of a block's largest");
}

}  // namespace
}  // namespace arcomm
