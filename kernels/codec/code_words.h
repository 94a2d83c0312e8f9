// How the codes of half a block, sixteen of them, lie in the words of a packet, and which floats
// their bits are. Pure, so that every code is tried on the CPU (tests/unit/kernels).
//
// Codes are taken in pairs, as 16-bit elements lie in a word: code 2 j is the lower half of pair j,
// code 2 j + 1 the upper. No code is shifted to become a number: bits that stand in a float's
// mantissa are the number 2^k + code once an exponent is put above them. One shift then serves
// several codes, which stay where they are.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/codec/format.h"

namespace arcomm {

inline constexpr std::uint32_t kHalfBlock = kCodecBlock / 2, kPairsOfHalf = kHalfBlock / 2;

// A code of kBits bits that begins at bit kBit of a word, in a float's mantissa. What it is, less
// its bias, once `kOffset` is taken away, exactly.
template <int kBits, int kBit>
struct CodeInMantissa {
  static_assert(kBit + kBits <= 23);
  static constexpr std::uint32_t kMask = ((1U << kBits) - 1) << kBit;
  static constexpr std::uint32_t kExponent = static_cast<std::uint32_t>(127 + 23 - kBit) << 23;
  static constexpr float kOffset =
      std::bit_cast<float>(kExponent) + static_cast<float>(1 << (kBits - 1));
};

// pack(): of pairs of biased codes. Code i begins at bit_of(i) of word_of(words, i).
template <int kBits>
struct CodeWords;

// Word w has pair 4 w + j from bit 4 j on.
template <>
struct CodeWords<4> {
  static constexpr std::uint32_t kWords = 2;
  static constexpr void pack(const std::uint32_t (&pairs)[kPairsOfHalf],
                             std::uint32_t (&words)[kWords]) {
    for (std::uint32_t w = 0; w < kWords; ++w) {
      const std::uint32_t* const four = pairs + 4 * w;
      words[w] = four[0] + four[1] * 16 + four[2] * 256 + four[3] * 4096;
    }
  }
  static constexpr std::uint32_t word_of(const std::uint32_t (&words)[kWords], std::uint32_t i) {
    return i % 2 == 0 ? words[i / 8] : words[i / 8] >> 16;
  }
  static constexpr int bit_of(std::uint32_t i) { return static_cast<int>(4 * (i / 2 % 4)); }
};

// Word w has pairs 2 w and 2 w + 1, from bits 0 and 6 on. That leaves four bits in each half of
// each word, twelve in all, for pairs 6 and 7.
template <>
struct CodeWords<6> {
  static constexpr std::uint32_t kWords = 3;
  static constexpr void pack(const std::uint32_t (&pairs)[kPairsOfHalf],
                             std::uint32_t (&words)[kWords]) {
    const std::uint32_t last = pairs[6] + pairs[7] * 64;
    for (std::uint32_t w = 0; w < kWords; ++w)
      words[w] = (pairs[2 * w] + pairs[2 * w + 1] * 64) | (last << (12 - 4 * w) & 0xf000'f000U);
  }
  static constexpr std::uint32_t word_of(const std::uint32_t (&words)[kWords], std::uint32_t i) {
    const std::uint32_t last = (words[0] >> 12 & 0x000f'000fU) | (words[1] >> 8 & 0x00f0'00f0U) |
                               (words[2] >> 4 & 0x0f00'0f00U);
    const std::uint32_t word = i < 4 * kWords ? words[i / 4] : last;
    return i % 2 == 0 ? word : word >> 16;
  }
  static constexpr int bit_of(std::uint32_t i) { return i / 2 % 2 == 0 ? 0 : 6; }
};

// Word w has pair 2 w in its even bytes and pair 2 w + 1 in its odd ones.
template <>
struct CodeWords<8> {
  static constexpr std::uint32_t kWords = 4;
  static constexpr void pack(const std::uint32_t (&pairs)[kPairsOfHalf],
                             std::uint32_t (&words)[kWords]) {
    for (std::uint32_t w = 0; w < kWords; ++w) words[w] = pairs[2 * w] + pairs[2 * w + 1] * 256;
  }
  static constexpr std::uint32_t byte_of(std::uint32_t i) { return i / 2 % 2 + 2 * (i % 2); }
  static constexpr std::uint32_t word_of(const std::uint32_t (&words)[kWords], std::uint32_t i) {
    return words[i / 4] >> (8 * byte_of(i));
  }
  static constexpr int bit_of(std::uint32_t) { return 0; }
};

// A byte for each, in their order: how codes are on their way from and to memory (packed_bits.h).
struct CodeBytes {
  static constexpr std::uint32_t kWords = kHalfBlock / 4;
  static constexpr void pack(const std::uint32_t (&pairs)[kPairsOfHalf],
                             std::uint32_t (&words)[kWords]) {
    for (std::uint32_t w = 0; w < kWords; ++w) {
      const std::uint32_t first = pairs[2 * w], second = pairs[2 * w + 1];
      words[w] = (first & 0xffU) | (first >> 8 & 0xff00U) | (second & 0xffU) << 16 |
                 (second & 0xff'0000U) << 8;
    }
  }
  static constexpr std::uint32_t byte_of(std::uint32_t i) { return i % 4; }
  static constexpr std::uint32_t word_of(const std::uint32_t (&words)[kWords], std::uint32_t i) {
    return words[i / 4] >> (8 * byte_of(i));
  }
  static constexpr int bit_of(std::uint32_t) { return 0; }
};

// A value in steps of its scale becomes a code by this being added: the sum is rounded to a whole
// number, to nearest, ties to even, and its last bits are the biased code.
template <int kBits>
inline constexpr float kToCode = 1.5F * 0x1p23F + static_cast<float>(1 << (kBits - 1));

}  // namespace arcomm
