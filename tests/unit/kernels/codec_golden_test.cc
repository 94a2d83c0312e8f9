#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/args.h"
#include "kernels/codec/golden.h"
#include "kernels/host/element.h"
#include "kernels/host/reference_coded.h"
#include "proto/coding.h"
#include "tests/unit/kernels/codec_samples.h"

namespace arcomm {
namespace {

using Bytes = std::array<std::byte, kMostBlockBytes>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Bytes encoded(Codec codec, const Block& values) {
  Bytes bytes{};
  golden::encode(codec, values, bytes.data());
  return bytes;
}

Block decoded(Codec codec, const Bytes& bytes) {
  Block values{};
  golden::decode(codec, bytes.data(), values);
  return values;
}

Block after_round_trip(Codec codec, const Block& values) {
  Block result{};
  golden::round_trip(codec, values, result);
  return result;
}

std::uint16_t scale_in(Codec codec, const Bytes& bytes) {
  std::uint16_t scale = 0;
  std::memcpy(&scale, bytes.data() + format_of(codec).code_bytes(), sizeof(scale));
  return scale;
}

bool all_codes_are_zero(Codec codec, const Bytes& bytes) {
  const CodecFormat format = format_of(codec);
  const auto zero = format.bits == 8   ? std::byte{0}
                    : format.bits == 6 ? std::byte{0x00}  // 32: the lower bits
                                       : std::byte{0x88};
  for (std::uint32_t i = 0; i < format.code_bytes(); ++i) {
    const bool is_upper = format.bits == 6 && i >= 16;
    if (bytes[i] != (is_upper ? std::byte{0xaa} : zero)) return false;
  }
  return true;
}

TEST(CodecFormatTest, GreatestScalesAreTheLastWithWhichEveryCodeIsFinite) {
  for (const Codec codec : kRealCodecs) {
    const CodecFormat format = format_of(codec);
    const float greatest_code = format.is_fp8() ? 448.0F : static_cast<float>(format.levels);
    EXPECT_TRUE(std::isfinite(float_from_bfloat16(format.most_scale()) * greatest_code));
    const auto next = static_cast<std::uint16_t>(format.most_scale() + 1);
    EXPECT_FALSE(std::isfinite(float_from_bfloat16(next) * greatest_code)) << text_of(codec);
  }
}

TEST(E4m3, EveryCodeComesBackAndTiesGoToEven) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = golden::float_from_e4m3(static_cast<std::uint8_t>(code));
    if ((code & 0x7fU) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    ASSERT_EQ(golden::e4m3_from_float(value), code);
    if ((code & 0x7fU) == 0x7e) continue;
    const auto next = static_cast<std::uint8_t>(code + 1);
    const float middle = (value + golden::float_from_e4m3(next)) / 2;
    ASSERT_EQ(golden::e4m3_from_float(middle), code % 2 == 0 ? code : next);
  }
  EXPECT_EQ(golden::e4m3_from_float(1e30F), 0x7e);
  EXPECT_EQ(golden::e4m3_from_float(-449.0F), 0xfe);
  EXPECT_EQ(golden::e4m3_from_float(-0.0F), 0x80);
  EXPECT_EQ(golden::float_from_e4m3(0x01), 0x1p-9F);
  EXPECT_EQ(golden::float_from_e4m3(0x3c), 1.5F);
}

// Every code, beside the one that makes the scale come back; rotated codecs quantize the same.
TEST(GoldenCodec, EveryCodeDecodesAndEncodesToTheSameBits) {
  std::mt19937_64 random(3);
  for (const Codec codec : {Codec::Fp8, Codec::Q8, Codec::Q6, Codec::Q4}) {
    const CodecFormat format = format_of(codec);
    for (const std::uint32_t scale : {0x0d80U, 0x3f80U, 0x3f81U, 0x40ffU, 0xc0ffU, 0x3fabU, 0x7b00U,
                                      std::uint32_t{format.most_scale()}}) {
      if (format.is_fp8() && (scale & 0x8000U) != 0) continue;  // none of its own making
      for (unsigned code = 0; code < 1U << format.bits; ++code) {
        if (format.is_fp8() && (code & 0x7fU) == 0x7f) continue;
        Block values{};
        const auto signed_code = [&](unsigned biased) {
          if (format.is_fp8()) return golden::float_from_e4m3(static_cast<std::uint8_t>(biased));
          return static_cast<float>(biased) - static_cast<float>(format.levels);
        };
        const float stored = float_from_bfloat16(static_cast<std::uint16_t>(scale));
        for (float& value : values) value = signed_code(code) * stored;
        values[random() % 32] =
            (format.is_fp8() ? 448.0F : -static_cast<float>(format.levels)) * stored;
        const Bytes bytes = encoded(codec, values);
        ASSERT_EQ(scale_in(codec, bytes), scale) << text_of(codec) << " code " << code;
        const Block back = decoded(codec, bytes);
        for (std::uint32_t i = 0; i < kCodecBlock; ++i) ASSERT_EQ(back[i], values[i]);
        ASSERT_EQ(encoded(codec, back), bytes) << text_of(codec) << " code " << code;
      }
    }
  }
}

TEST(GoldenCodec, BytesLieWhereTheFormatSays) {
  Block values{};
  for (std::uint32_t i = 0; i < kCodecBlock; ++i) values[i] = static_cast<float>(i % 8);
  values[31] = -8;  // m: the scale of q4 is 1, of q6 1/4
  const Bytes q4 = encoded(Codec::Q4, values);
  EXPECT_EQ(q4[0], std::byte{0x98});   // 0 and 1, plus 8
  EXPECT_EQ(q4[15], std::byte{0x0e});  // 6 and -8
  EXPECT_EQ(q4[16], std::byte{0x80});  // 1.0 as a bfloat16, the lower byte first
  EXPECT_EQ(q4[17], std::byte{0x3f});
  const Bytes q6 = encoded(Codec::Q6, values);
  EXPECT_EQ(q6[0], std::byte{0x40});   // 32 and 36: lower bits 0 and 4
  EXPECT_EQ(q6[15], std::byte{0x08});  // 56 and 0
  EXPECT_EQ(q6[16], std::byte{0xaa});  // 32, 36, 40, 44: upper bits 2
  EXPECT_EQ(q6[23], std::byte{0x3f});  // 48, 52, 56, 0
  EXPECT_EQ(scale_in(Codec::Q6, q6), 0x3e80);
  const Bytes q8 = encoded(Codec::Q8, values);
  EXPECT_EQ(q8[1], std::byte{16});
  EXPECT_EQ(q8[31], std::byte{0x80});
  EXPECT_EQ(scale_in(Codec::Q8, q8), 0x3d80);
  values[31] = -448;
  const Bytes fp8 = encoded(Codec::Fp8, values);
  EXPECT_EQ(fp8[3], std::byte{0x44});  // 3
  EXPECT_EQ(fp8[31], std::byte{0xfe});
  EXPECT_EQ(scale_in(Codec::Fp8, fp8), 0x3f80);
}

TEST(GoldenCodec, TheFirstAmongEqualsGivesTheScaleItsSign) {
  Block values{};
  values[4] = 8;
  values[9] = -8;
  EXPECT_EQ(scale_in(Codec::Q4, encoded(Codec::Q4, values)), 0xbf80);
  std::swap(values[4], values[9]);
  EXPECT_EQ(scale_in(Codec::Q4, encoded(Codec::Q4, values)), 0x3f80);
}

TEST(GoldenCodec, TinyBlocksAreZerosWithoutASign) {
  for (const Codec codec : kRealCodecs) {
    for (const float value : {0.0F, -0.0F, -0x1p-149F, 0x1p-126F, 0x1.fffffep-106F}) {
      Block values{};
      values.fill(value);
      const Bytes bytes = encoded(codec, values);
      EXPECT_EQ(scale_in(codec, bytes), 0) << text_of(codec) << ' ' << value;
      EXPECT_TRUE(all_codes_are_zero(codec, bytes)) << text_of(codec) << ' ' << value;
      for (const float back : after_round_trip(codec, values)) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(back), 0u);
      }
    }
    Block values{};
    values[5] = 0x1p-100F;
    EXPECT_NE(scale_in(codec, encoded(codec, values)), 0) << text_of(codec);
  }
}

TEST(GoldenCodec, OneValueThatIsNotFiniteMakesItsBlockNaN) {
  for (const Codec codec : kRealCodecs) {
    for (const float value : {kInfinity, -kInfinity, kNan, std::bit_cast<float>(0xff812345U)}) {
      for (const std::uint32_t at : {0U, 13U, 31U}) {
        Block values{};
        values.fill(2.5F);
        values[at] = value;
        const Bytes bytes = encoded(codec, values);
        EXPECT_EQ(scale_in(codec, bytes), kNanScale) << text_of(codec);
        EXPECT_TRUE(all_codes_are_zero(codec, bytes)) << text_of(codec);
        for (const float back : after_round_trip(codec, values)) EXPECT_TRUE(std::isnan(back));
      }
    }
  }
  // Finite, but not in the transform.
  Block values{};
  values.fill(std::numeric_limits<float>::max());
  for (const float back : after_round_trip(Codec::Q4Rotated, values)) EXPECT_TRUE(std::isnan(back));
  for (const float back : after_round_trip(Codec::Q4, values)) EXPECT_TRUE(std::isfinite(back));
}

TEST(GoldenCodec, DecodesAnyBytes) {
  std::mt19937_64 random(5);
  for (const Codec codec : kRealCodecs) {
    // To the byte, so that a sanitizer sees an access behind them.
    std::vector<std::byte> bytes(format_of(codec).block_bytes());
    for (int i = 0; i < 2000; ++i) {
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      Block values{};
      golden::decode(codec, bytes.data(), values);
      const std::byte scale = bytes.back();
      if (codec == Codec::Fp8 || (scale & std::byte{0x7f}) >= std::byte{0x7b}) continue;
      for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << text_of(codec);
    }
  }
}

TEST(GoldenCodec, TheTransformTwiceIsThirtyTwoTimesTheBlock) {
  Block values{};
  values[3] = 1;
  golden::transform(values);
  for (std::uint32_t i = 0; i < kCodecBlock; ++i) {
    EXPECT_EQ(values[i], std::popcount(i & 3U) % 2 == 0 ? 1.0F : -1.0F);
  }
  golden::transform(values);
  for (std::uint32_t i = 0; i < kCodecBlock; ++i) EXPECT_EQ(values[i], i == 3 ? 32.0F : 0.0F);
}

float magnitude(float value) {
  return std::fabs(value);
}

void expect_within_bounds(Codec codec, const Block& values) {
  const Block result = after_round_trip(codec, values);
  std::array<double, kCodecBlock> bounds{};
  golden::error_bounds(codec, values, bounds);
  for (std::uint32_t i = 0; i < kCodecBlock; ++i) {
    if (std::isinf(bounds[i])) {  // the transform may overflow
      ASSERT_TRUE(format_of(codec).rotated &&
                  magnitude(std::ranges::max(values, {}, magnitude)) > 0x1p118F);
      continue;
    }
    const double off = std::fabs(static_cast<double>(result[i]) - static_cast<double>(values[i]));
    ASSERT_LE(off, bounds[i]) << text_of(codec) << " element " << i << " is " << values[i];
  }
}

TEST(GoldenCodec, EveryElementIsWithinThePublishedBound) {
  std::mt19937_64 random(8);
  for (const Codec codec : kRealCodecs) {
    for (const Block& block : adversarial_blocks()) expect_within_bounds(codec, block);
    for (int i = 0; i < 20'000; ++i) expect_within_bounds(codec, random_block(random));
  }
}

// What more than two GPUs do: the sum is encoded once more. Its bound is that of all addends and
// one more, of a block whose values may be off by the others' already.
TEST(GoldenCodec, TwoHopsAddTheBoundOfOneQuantizationMore) {
  constexpr std::uint32_t kRanks = 4;
  std::mt19937_64 random(11);
  for (const Codec codec : kRealCodecs) {
    for (int run = 0; run < 2000; ++run) {
      std::array<Block, kRanks> inputs{};
      Block result{};
      std::array<double, kCodecBlock> exact{}, bounds{}, own{};
      AllReduceArgs args = AllReduceArgs::among(kRanks, kCodecBlock, DType::Float32, ReduceOp::Sum);
      args.codec = codec;
      args.num_outputs = 1;
      args.outputs[0] = result.data();
      std::normal_distribution<float> normal;
      double largest = 0;  // of the sums, as they are when they are encoded
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        for (float& value : inputs[rank]) value = normal(random);
        args.inputs[rank] = inputs[rank].data();
        golden::error_bounds(codec, inputs[rank], own);
        for (std::uint32_t i = 0; i < kCodecBlock; ++i) {
          exact[i] += static_cast<double>(inputs[rank][i]);
          bounds[i] += own[i];
        }
      }
      reference::coded_all_reduce_in_two_hops(args, 0, kCodecBlock);
      for (std::uint32_t i = 0; i < kCodecBlock; ++i) {
        largest = std::max(largest, std::fabs(exact[i]) + bounds[i]);
      }
      const double once_more = relative_error_of(codec, 1) * largest;
      for (std::uint32_t i = 0; i < kCodecBlock; ++i) {
        const double off = std::fabs(static_cast<double>(result[i]) - exact[i]);
        ASSERT_LE(off, bounds[i] + once_more + 1e-5 * largest) << text_of(codec);
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
