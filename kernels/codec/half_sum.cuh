// The sum of two packets' codes of four bits in float16, two elements with one instruction. A code
// of three bits and a sign times a scale of eight has eleven, as float16 has, so the products are
// exact, and the sum is rounded once. In float32 it would be rounded twice, to the same: where two
// numbers of eleven bits differ so much in size that float32 rounds their sum, the smaller is less
// than a half of what float16 rounds away, by more than float32 does.
//
// Opened: of PacketCodes of four bits, with four turns.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/codec/blocks.cuh"
#include "kernels/device/ptx.cuh"

namespace arcomm::device {

// Whether all scales, and half of them, are numbers with which that is so: products are finite, and
// none has bits below float16's last one; or zero. So the least is looked for among scales less 1,
// of which zero's is the largest there is.
inline constexpr std::uint32_t kLeastScaleInHalf = 0x3780, kMostScaleInHalf = 0x45ff;

template <typename Opened>
__device__ __forceinline__ bool are_exact_in_half(const Opened& first, const Opened& second) {
  constexpr std::uint32_t kBoth = 0x1'0001U, kMinusOne = 0xffff'ffffU;  // in both halves
  constexpr std::uint32_t kLeast = (kLeastScaleInHalf - 1) * kBoth;
  constexpr std::uint32_t kMost = kMostScaleInHalf * kBoth;
  std::uint32_t most = kMost, least = kLeast;
#pragma unroll
  for (std::uint32_t n = 0; n < 2; ++n) {
    const std::uint32_t a = first.scales(n) & 0x7fff'7fffU, b = second.scales(n) & 0x7fff'7fffU;
    most = __vmaxu2(most, __vmaxu2(a, b));
    least = __viaddmin_u16x2(a, kMinusOne, __viaddmin_u16x2(b, kMinusOne, least));
  }
  return most == kMost && least == kLeast;
}

// Codes 2 j and 2 j + 1 of such a word: as code_words.h has them, in the mantissas of two float16.
template <std::uint32_t kPair>
__device__ __forceinline__ __half2 codes_in_half(std::uint32_t word) {
  constexpr std::uint32_t kBit = 4 * (kPair % 2);
  constexpr std::uint32_t kExponents = (25 - kBit) << 10;  // of 2^(10 - kBit)
  const std::uint32_t bits =
      bits_of_both(kPair < 2 ? word : word >> 8, 0x000f'000fU << kBit, kExponents * 0x1'0001U);
  return __hadd2_rn(reinterpret_cast<const __half2&>(bits),
                    __float2half2_rn(-static_cast<float>((1U << (10 - kBit)) + 8)));
}

// `factor`: 1 or 1/2.
template <typename Half, typename Opened>
__device__ __forceinline__ Half sum_in_half(const Opened& first, const Opened& second,
                                            std::uint32_t turn, float factor) {
  constexpr std::uint32_t kWords = CodeWords<4>::kWords;
  std::uint32_t of_first[kWords], of_second[kWords];
  first.words(turn, of_first);
  second.words(turn, of_second);
  const __half2 first_scale = __float2half2_rn(__fmul_rn(first.scale(turn), factor));
  const __half2 second_scale = __float2half2_rn(__fmul_rn(second.scale(turn), factor));
  __half2 sums[kPairsOfHalf];
#pragma unroll
  for (std::uint32_t w = 0; w < kWords; ++w) {
    const auto add = [&]<std::uint32_t kPair>() {
      const __half2 product = __hmul2_rn(codes_in_half<kPair>(of_first[w]), first_scale);
      sums[4 * w + kPair] = __hfma2(codes_in_half<kPair>(of_second[w]), second_scale, product);
    };
    add.template operator()<0>();
    add.template operator()<1>();
    add.template operator()<2>();
    add.template operator()<3>();
  }
  Half half;
  __builtin_memcpy(&half, sums, sizeof(half));
  return half;
}

}  // namespace arcomm::device
