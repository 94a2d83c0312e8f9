// What GPUs' codecs do with single bits and single instructions, one by one on the CPU: that codes
// come out of their words as the golden codec reads them, and that short ways to round and to
// divide end where the long ones do.
#include "kernels/codec/code_words.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>

#include "kernels/codec/golden.h"
#include "kernels/codec/packed_bits.h"
#include "kernels/host/element.h"

namespace arcomm {
namespace {

template <int kBits>
constexpr Codec codec_of() {
  return kBits == 8 ? Codec::Q8 : kBits == 6 ? Codec::Q6 : Codec::Q4;
}
template <int kBits>
constexpr std::uint32_t kLevels = 1U << (kBits - 1);

template <int kBits, std::uint32_t kI>
float code_at(const std::uint32_t (&words)[CodeWords<kBits>::kWords]) {
  using Words = CodeWords<kBits>;
  using Code = CodeInMantissa<kBits, Words::bit_of(kI)>;
  const std::uint32_t bits = (Words::word_of(words, kI) & Code::kMask) | Code::kExponent;
  return std::bit_cast<float>(bits) - Code::kOffset;
}
template <int kBits>
std::array<float, kHalfBlock> codes_in(const std::uint32_t (&words)[CodeWords<kBits>::kWords]) {
  return [&]<std::size_t... kI>(std::index_sequence<kI...>) {
    return std::array{code_at<kBits, kI>(words)...};
  }
  (std::make_index_sequence<kHalfBlock>());
}

// A block of the golden codec, all of whose codes are the biased `code`.
template <int kBits>
std::array<std::byte, kMostBlockBytes> golden_block(std::uint32_t code, std::uint16_t scale) {
  std::array<std::byte, kMostBlockBytes> block{};
  const std::uint32_t of_8 = code - kLevels<8>, lower = (code & 15U) * 0x11U;
  for (std::uint32_t i = 0; i < format_of(codec_of<kBits>()).code_bytes(); ++i) {
    const std::uint32_t upper = (code >> 4) * 0x55U;
    block[i] = static_cast<std::byte>(kBits == 8 ? of_8 & 0xffU : i < 16 ? lower : upper);
  }
  block[format_of(codec_of<kBits>()).code_bytes()] = static_cast<std::byte>(scale & 0xffU);
  block[format_of(codec_of<kBits>()).code_bytes() + 1] = static_cast<std::byte>(scale >> 8);
  return block;
}

template <int kBits>
void expect_every_code_to_come_back() {
  std::mt19937 random(kBits);
  for (std::uint32_t code = 0; code < 2 * kLevels<kBits>; ++code) {
    for (std::uint32_t place = 0; place < kHalfBlock; ++place) {
      std::uint32_t codes[kHalfBlock], pairs[kPairsOfHalf], words[CodeWords<kBits>::kWords];
      for (std::uint32_t& other : codes) other = random() % (2 * kLevels<kBits>);
      codes[place] = code;
      for (std::uint32_t j = 0; j < kPairsOfHalf; ++j)
        pairs[j] = codes[2 * j] | codes[2 * j + 1] << 16;
      CodeWords<kBits>::pack(pairs, words);
      const std::array<float, kHalfBlock> seen = codes_in<kBits>(words);
      for (std::uint32_t i = 0; i < kHalfBlock; ++i) {
        ASSERT_EQ(seen[i], static_cast<float>(codes[i]) - static_cast<float>(kLevels<kBits>))
            << kBits << " bits, code " << i;
      }
    }
  }
}

// Four codes at a time, as the GPUs' lanes have them, put where the golden codec looks for them.
template <int kBits>
void expect_every_four_codes_where_the_golden_codec_reads_them() {
  std::mt19937 random(kBits);
  for (int round = 0; round < 500; ++round) {
    std::array<std::byte, kMostBlockBytes> block = golden_block<kBits>(0, 0x3f80);
    std::array<std::uint32_t, kCodecBlock> codes{};
    for (std::uint32_t& code : codes) code = random() % (2 * kLevels<kBits>);
    for (std::uint32_t i = 0; i < kCodecBlock; i += 4) {
      const std::uint32_t four =
          codes[i] | codes[i + 1] << 8 | codes[i + 2] << 16 | codes[i + 3] << 24;
      const std::uint32_t low = pack_low(four), high = pack_high(four);
      block[i / 2] = static_cast<std::byte>(low & 0xffU);
      block[i / 2 + 1] = static_cast<std::byte>(low >> 8);
      if (kBits == 6) block[kCodecBlock / 2 + i / 4] = static_cast<std::byte>(high);
      ASSERT_EQ(unpack_low(low) | unpack_high(high), four);
    }
    std::array<float, kCodecBlock> seen{};
    golden::decode(codec_of<kBits>(), block.data(), seen);
    for (std::uint32_t i = 0; i < kCodecBlock; ++i)
      ASSERT_EQ(seen[i], static_cast<float>(codes[i]) - static_cast<float>(kLevels<kBits>)) << i;
  }
}

TEST(PackedBits, LieWhereTheGoldenCodecReadsThem) {
  expect_every_four_codes_where_the_golden_codec_reads_them<4>();
  expect_every_four_codes_where_the_golden_codec_reads_them<6>();
}

TEST(CodeBytes, HaveACodeInEachByteInTheirOrder) {
  std::uint32_t pairs[kPairsOfHalf], words[CodeBytes::kWords];
  for (std::uint32_t j = 0; j < kPairsOfHalf; ++j)
    pairs[j] = (0xf0 + 2 * j) | (0xf0 + 2 * j + 1) << 16;
  CodeBytes::pack(pairs, words);
  for (std::uint32_t i = 0; i < kHalfBlock; ++i) {
    EXPECT_EQ(words[i / 4] >> (8 * CodeBytes::byte_of(i)) & 0xffU, 0xf0 + i);
    EXPECT_EQ(CodeBytes::word_of(words, i) & 0xffU, 0xf0 + i);
  }
}

TEST(CodeWords, GiveBackEveryCodeInEveryPlace) {
  expect_every_code_to_come_back<4>();
  expect_every_code_to_come_back<6>();
  expect_every_code_to_come_back<8>();
}

template <int kBits>
void expect_golden_products() {
  for (std::uint32_t code = 0; code < 2 * kLevels<kBits>; ++code) {
    std::uint32_t pairs[kPairsOfHalf], words[CodeWords<kBits>::kWords];
    for (std::uint32_t& pair : pairs) pair = code * 0x1'0001U;
    CodeWords<kBits>::pack(pairs, words);
    const float seen = codes_in<kBits>(words)[code % kHalfBlock];
    for (std::uint32_t scale = 0; scale <= 0xffffU; ++scale) {
      const auto bits = static_cast<std::uint16_t>(scale);
      std::array<float, kCodecBlock> right{};
      golden::decode(codec_of<kBits>(), golden_block<kBits>(code, bits).data(), right);
      const float product = seen * float_from_bfloat16(bits);
      if (std::isnan(right[0]) && std::isnan(product)) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(product), std::bit_cast<std::uint32_t>(right[0]))
          << kBits << " bits, code " << code << ", scale " << scale;
    }
  }
}

TEST(CodeWords, TimesEveryScaleAreWhatTheGoldenCodecDecodes) {
  expect_golden_products<4>();
  expect_golden_products<6>();
  expect_golden_products<8>();
}

template <int kBits>
void expect_rounding() {
  constexpr auto kL = static_cast<float>(kLevels<kBits>);
  const auto expect = [](float steps) {
    const auto sum = std::bit_cast<std::uint32_t>(steps + kToCode<kBits>);
    const float right = std::nearbyint(steps);  // -kL at least, of steps as blocks have them
    ASSERT_EQ(static_cast<float>(static_cast<std::int16_t>(sum & 0xffffU)), right + kL) << steps;
  };
  for (float tie = -kL - 0.5F; tie <= kL + 0.5F; tie += 0.5F) {
    expect(tie);
    expect(std::nextafter(tie, std::numeric_limits<float>::max()));
    expect(std::nextafter(tie, std::numeric_limits<float>::lowest()));
    expect(tie + 0.125F);
  }
  expect(-0.0F);
  expect(std::numeric_limits<float>::denorm_min());
}

TEST(CodeWords, AreRoundedToNearestByWhatIsAddedToSteps) {
  expect_rounding<4>();
  expect_rounding<6>();
  expect_rounding<8>();
}

// BlockScale::inverse() of kernels/codec/blocks.cuh.
TEST(InverseOfAScale, IsTheNearestOneThoughTheHardwaresIsOffByItsLastBits) {
  for (int exponent = -110; exponent < 125; ++exponent) {
    for (std::uint32_t mantissa = 0; mantissa < 128; ++mantissa) {
      const float scale = std::ldexp(static_cast<float>(128 + mantissa) / 128, exponent);
      const float right = 1.0F / scale;
      for (std::int32_t off = -2; off <= 2; ++off) {
        const auto nearly = std::bit_cast<float>(std::bit_cast<std::int32_t>(right) + off);
        ASSERT_EQ(std::fma(nearly, std::fma(-scale, nearly, 1.0F), nearly), right)
            << scale << ", off by " << off;
      }
    }
  }
}

// Fp8Code::scale_of() of kernels/codec/blocks.cuh.
TEST(Division, By448IsTheNearestQuotientOfEveryMantissa) {
  constexpr float kInverse = 1.0F / 448;
  for (const int exponent : {-100, 0, 127}) {
    for (std::uint32_t mantissa = 0; mantissa < 1U << 23; ++mantissa) {
      const auto value =
          std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23 | mantissa);
      const float quotient = value * kInverse, rest = std::fma(-quotient, 448.0F, value);
      ASSERT_EQ(std::fma(rest, kInverse, quotient), value / 448) << value;
    }
  }
}

// kernels/codec/half_sum.cuh: of two codes of four bits times scales, in float16 at once.
TEST(SumOfTwoProducts, IsRoundedToFloat16OnceOrTwiceToTheSame) {
  std::mt19937 random(1);
  const auto product = [&] {
    const double code = static_cast<double>(random() % 16) - 8;
    const double mantissa = static_cast<double>(128 + random() % 128) / 128;
    return std::ldexp(code * mantissa, static_cast<int>(random() % 29) - 17);
  };
  for (int i = 0; i < 4'000'000; ++i) {
    const double sum = product() + product();  // exact
    const std::uint16_t twice = float16_from_float(static_cast<float>(sum));
    const auto off = [&](std::uint32_t bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      return std::fabs(static_cast<double>(float_from_float16(half)) - sum);
    };
    if ((twice & 0x7fffU) >= 0x7bffU) continue;  // the largest, and beyond
    for (const std::uint32_t other : {twice + 1U, twice - 1U}) {
      if ((twice & 0x7fffU) == 0 && other == twice - 1U) continue;  // of another sign
      ASSERT_TRUE(off(twice) < off(other) || (off(twice) == off(other) && twice % 2 == 0)) << sum;
    }
  }
}

}  // namespace
}  // namespace arcomm
