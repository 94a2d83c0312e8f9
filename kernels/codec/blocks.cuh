// How the elements of a block of 32 become codes and a scale, and sums elements again, by two
// neighbouring lanes of a warp of which each has sixteen: the formats of README.md beside this, bit
// for bit what golden.h makes. All lanes of a warp call these together.
//
// Vectors of 16 bytes of a block lie with the two lanes in turns, so that a warp moves neighbouring
// bytes with one instruction.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/codec/code_words.h"
#include "kernels/codec/extremes.cuh"
#include "kernels/codec/format.h"
#include "kernels/device/element.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/lines/ll128.cuh"

namespace arcomm::device {

inline constexpr float kLargestFinite = 3.402823466e38F;

// Of a pair's lanes: the one that has the second vector of a block.
__device__ __forceinline__ bool is_second_lane() {
  return lane_of_thread() % 2 != 0;
}
// Where element i of a lane's half lies in its block, of elements of which a vector has kInVector.
template <std::uint32_t kInVector>
__device__ __forceinline__ std::uint32_t place_in_block(std::uint32_t i) {
  return (2 * (i / kInVector) + (is_second_lane() ? 1 : 0)) * kInVector + i % kInVector;
}

// What a lane has of a block.
struct HalfBlock {
  static constexpr std::uint32_t kBytes = 4;
  float values[kHalfBlock];

  __device__ __forceinline__ void bits(std::uint32_t (&words)[kHalfBlock]) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kHalfBlock; ++i) words[i] = __float_as_uint(values[i]);
  }
  __device__ __forceinline__ float2 pair(std::uint32_t j) const {
    return {values[2 * j], values[2 * j + 1]};
  }
  static __device__ __forceinline__ float widen(std::uint32_t bits) {
    return __uint_as_float(bits);
  }
};

// The same of 16-bit elements, as they lie in memory.
template <typename Format>
struct HalfBlockOf16Bits {
  static constexpr std::uint32_t kBytes = 2;
  std::uint32_t words[kPairsOfHalf];

  __device__ __forceinline__ void bits(std::uint32_t (&to)[kPairsOfHalf]) const {
#pragma unroll
    for (std::uint32_t j = 0; j < kPairsOfHalf; ++j) to[j] = words[j];
  }
  __device__ __forceinline__ float2 pair(std::uint32_t j) const {
    return {widen(words[j] & 0xffffU), widen(words[j] >> 16)};
  }
  static __device__ __forceinline__ float widen(std::uint32_t bits) {
    return Format::widen(static_cast<std::uint16_t>(bits));
  }
};

// Twice the place of the first element of the half that has this magnitude, and 1 where it is
// negative; all bits where there is none.
template <std::uint32_t kInVector, typename Half>
__device__ __forceinline__ std::uint32_t first_of_magnitude(const Half& half,
                                                            std::uint32_t magnitude) {
  constexpr std::uint32_t kSign = 1U << (8 * Half::kBytes - 1);
  std::uint32_t words[Extremes<Half::kBytes>::kWords];
  half.bits(words);
  std::uint32_t first = ~0U;
#pragma unroll
  for (std::uint32_t i = 0; i < kHalfBlock; ++i) {
    const std::uint32_t bits =
        Half::kBytes == 4 ? words[i] : words[i / 2] >> (16 * (i % 2)) & 0xffffU;
    const std::uint32_t sign = (bits & kSign) != 0 ? 1 : 0;
    if ((bits & (kSign - 1)) == magnitude)
      first = min(first, 2 * place_in_block<kInVector>(i) + sign);
  }
  return first;
}

// Out of line, as few blocks have the largest magnitude in both signs; but not of floats, which are
// too many for registers to be kept beside a call.
template <std::uint32_t kInVector, typename Format>
__device__ __noinline__ std::uint32_t first_of_magnitude_apart(HalfBlockOf16Bits<Format> half,
                                                               std::uint32_t magnitude) {
  return first_of_magnitude<kInVector>(half, magnitude);
}
template <std::uint32_t kInVector>
__device__ __forceinline__ std::uint32_t first_of_magnitude_apart(const HalfBlock& half,
                                                                  std::uint32_t magnitude) {
  return first_of_magnitude<kInVector>(half, magnitude);
}

// The 32-point Walsh-Hadamard transform of the block, unnormalized: strides within a vector, the
// one between the lanes, and those between a lane's vectors.
template <std::uint32_t kInVector>
__device__ __forceinline__ void rotate(HalfBlock& half) {
  const auto stage = [&half](std::uint32_t stride) {
#pragma unroll
    for (std::uint32_t i = 0; i < kHalfBlock; ++i) {
      if ((i & stride) != 0) continue;
      const float a = half.values[i], b = half.values[i + stride];
      half.values[i] = a + b;
      half.values[i + stride] = a - b;
    }
  };
#pragma unroll
  for (std::uint32_t stride = 1; stride < kInVector; stride *= 2) stage(stride);
  const float sign = is_second_lane() ? -1.0F : 1.0F;
#pragma unroll
  for (float& value : half.values)  // the product is exact
    value = __fmaf_rn(value, sign, __shfl_xor_sync(kWarp, value, 1));
#pragma unroll
  for (std::uint32_t stride = kInVector; stride < kHalfBlock; stride *= 2) stage(stride);
}
// Its inverse: it is its own, but for the factor.
template <std::uint32_t kInVector>
__device__ __forceinline__ void rotate_back(HalfBlock& half) {
  rotate<kInVector>(half);
#pragma unroll
  for (float& value : half.values) value *= 1.0F / kCodecBlock;
}

// A scale as it travels: a bfloat16.
struct BlockScale {
  std::uint32_t bits = 0;  // the lower 16

  __device__ __forceinline__ float value() const { return __uint_as_float(bits << 16); }
  // What codes are made with: its inverse, 0 where there is nothing but zeros, or no number.
  //
  // As __frcp_rn() does it, whose code is long. The hardware's inverse is off by e, of 2^-22 or
  // less, which is found exactly, as a scale has eight bits; put right, it is off by e^2; and no
  // inverse of eight bits lies closer than 2^-33 of itself to where rounding changes. All are
  // normal numbers, as scales are between 2^-110 and 2^125.
  __device__ __forceinline__ float inverse() const {
    const float scale = value(), nearly = approximate_inverse(scale);
    const float right = __fmaf_rn(nearly, __fmaf_rn(-scale, nearly, 1.0F), nearly);
    return bits == 0 || bits == kNanScale ? 0 : right;
  }
};

// `exact`: the scale's magnitude before it is rounded; `most`: bits of the largest that still
// decodes to finite numbers.
__device__ __forceinline__ std::uint32_t round_scale(float exact, std::uint32_t most) {
  return min(static_cast<std::uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(exact))), most);
}
// The scale of a block whose largest element has these bits, of which Half is a part.
template <typename Code, typename Half>
__device__ __forceinline__ BlockScale scale_of(const Largest& largest) {
  const float magnitude = Half::widen(largest.magnitude);
  const std::uint32_t scale = Code::scale_of(magnitude, largest.is_negative);
  if (!(magnitude <= kLargestFinite)) return {kNanScale};
  return {magnitude < kLeastCodedMagnitude ? 0 : scale};
}

// Two codes in 16 bits each, from the sums with kToCode: those above kMost are cut, and negative
// ones, too, where there may be any.
template <bool kMayBeNegative>
__device__ __forceinline__ std::uint32_t cut_pair(float2 sums, std::uint32_t most) {
  const std::uint32_t pair = __byte_perm(__float_as_uint(sums.x), __float_as_uint(sums.y), 0x5410);
  if constexpr (kMayBeNegative) return __vmins2(__vmaxs2(pair, 0), most * 0x1'0001U);
  return __vminu2(pair, most * 0x1'0001U);
}

// Codes of kBits bits, symmetric about zero but for the one that the largest element has. WordsOf:
// how they lie in words (code_words.h).
template <int kBits, typename WordsOf = CodeWords<kBits>>
struct IntegerCode {
  using Words = WordsOf;
  static constexpr std::uint32_t kWords = Words::kWords, kLevels = 1U << (kBits - 1);
  static constexpr std::uint32_t kMostScale = CodecFormat{kBits, kLevels}.most_scale();

  // Of a finite magnitude.
  static __device__ __forceinline__ std::uint32_t scale_of(float magnitude, bool is_negative) {
    const std::uint32_t scale = round_scale(magnitude * (1.0F / kLevels), kMostScale);
    return is_negative ? scale : scale | 0x8000U;
  }
  // A value is at most the largest, and so at most kLevels * (1 + 2^-8) steps of a scale that was
  // rounded, or cut to kMostScale: beyond -kLevels only where steps are 2^-8 or less of that, and
  // where the largest is beyond what a 16-bit type has.
  template <typename Half>
  static __device__ __forceinline__ void encode(const Half& half, float inverse,
                                                std::uint32_t (&words)[kWords]) {
    std::uint32_t pairs[kPairsOfHalf];
#pragma unroll
    for (std::uint32_t j = 0; j < kPairsOfHalf; ++j) {
      const float2 values = half.pair(j);
      const float2 sums = {__fadd_rn(__fmul_rn(values.x, inverse), kToCode<kBits>),
                           __fadd_rn(__fmul_rn(values.y, inverse), kToCode<kBits>)};
      pairs[j] = cut_pair < kBits == 8 && Half::kBytes == 4 > (sums, 2 * kLevels - 1);
    }
    Words::pack(pairs, words);
  }
  static __device__ __forceinline__ void decode(const std::uint32_t (&words)[kWords],
                                                float (&codes)[kHalfBlock]) {
    decode_from<0>(words, codes);
  }

 private:
  template <std::uint32_t kFrom>
  static __device__ __forceinline__ void decode_from(const std::uint32_t (&words)[kWords],
                                                     float (&codes)[kHalfBlock]) {
    using Code = CodeInMantissa<kBits, Words::bit_of(kFrom)>;
    std::uint32_t bits;
    if constexpr (requires { Words::byte_of(kFrom); }) {
      bits = __byte_perm(words[kFrom / 4], Code::kExponent, 0x7440 | Words::byte_of(kFrom));
    } else {
      bits = bits_of_both(Words::word_of(words, kFrom), Code::kMask, Code::kExponent);
    }
    codes[kFrom] = __fadd_rn(__uint_as_float(bits), -Code::kOffset);
    if constexpr (kFrom + 1 < kHalfBlock) decode_from<kFrom + 1>(words, codes);
  }
};

// e4m3, saturating.
struct Fp8Code {
  static constexpr std::uint32_t kWords = kHalfBlock / 4;
  static constexpr float kMost = 448;
  static constexpr std::uint32_t kMostScale = format_of(Codec::Fp8).most_scale();

  // As __fdiv_rn() does it: a quotient that is off by its last bit at most is put right by what it
  // leaves.
  static __device__ __forceinline__ std::uint32_t scale_of(float magnitude, bool) {
    constexpr float kInverse = 1.0F / kMost;
    const float quotient = __fmul_rn(magnitude, kInverse);
    const float rest = __fmaf_rn(-quotient, kMost, magnitude);
    return round_scale(__fmaf_rn(rest, kInverse, quotient), kMostScale);
  }
  template <typename Half>
  static __device__ __forceinline__ void encode(const Half& half, float inverse,
                                                std::uint32_t (&words)[kWords]) {
#pragma unroll
    for (std::uint32_t w = 0; w < kWords; ++w) {
      const auto two = [&](std::uint32_t j) -> std::uint32_t {
        const float2 values = half.pair(j);
        return __nv_cvt_float2_to_fp8x2(
            {__fmul_rn(values.x, inverse), __fmul_rn(values.y, inverse)}, __NV_SATFINITE,
            __NV_E4M3);
      };
      const std::uint32_t four = __byte_perm(two(2 * w), two(2 * w + 1), 0x5410);
      // A block of zeros has the code of +0 alone, whatever the signs of what it stands for.
      words[w] = inverse == 0 ? 0 : four;
    }
  }
  static __device__ __forceinline__ void decode(const std::uint32_t (&words)[kWords],
                                                float (&codes)[kHalfBlock]) {
#pragma unroll
    for (std::uint32_t j = 0; j < kPairsOfHalf; ++j) {
      const auto two = static_cast<__nv_fp8x2_storage_t>(words[j / 2] >> (16 * (j % 2)));
      const float2 both = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
      codes[2 * j] = both.x;
      codes[2 * j + 1] = both.y;
    }
  }
};

}  // namespace arcomm::device
