// How the elements of a block of 32 become codes and a scale, by two neighbouring lanes of a warp
// of which each has sixteen of them: the formats of README.md beside this, bit for bit what
// golden.h makes. All lanes of a warp call these together.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/codec/format.h"
#include "kernels/device/element.cuh"
#include "kernels/lines/ll128.cuh"

namespace arcomm::device {

inline constexpr std::uint32_t kHalfBlock = kCodecBlock / 2;  // a lane's
inline constexpr float kLargestFinite = 3.402823466e38F;

// What a lane has of a block.
struct HalfBlock {
  float values[kHalfBlock];
};

// Of a pair's lanes: the one with the second half.
__device__ __forceinline__ bool has_second_half() {
  return lane_of_thread() % 2 != 0;
}

// The 32-point Walsh-Hadamard transform of the block, unnormalized.
__device__ __forceinline__ void rotate(HalfBlock& half) {
#pragma unroll
  for (std::uint32_t stride = 1; stride < kHalfBlock; stride *= 2) {
#pragma unroll
    for (std::uint32_t i = 0; i < kHalfBlock; ++i) {
      if ((i & stride) != 0) continue;
      const float a = half.values[i], b = half.values[i + stride];
      half.values[i] = a + b;
      half.values[i + stride] = a - b;
    }
  }
#pragma unroll
  for (float& value : half.values) {
    const float other = __shfl_xor_sync(kWarp, value, 1);
    value = has_second_half() ? other - value : value + other;
  }
}
// Its inverse: it is its own, but for the factor.
__device__ __forceinline__ void rotate_back(HalfBlock& half) {
  rotate(half);
#pragma unroll
  for (float& value : half.values) value *= 1.0F / kCodecBlock;
}

// The element of the largest magnitude, the first among equals; NaN where one is not finite. The
// same in both lanes.
__device__ __forceinline__ float find_largest(const HalfBlock& half) {
  float largest = 0;
  bool is_finite = true;
#pragma unroll
  for (const float value : half.values) {
    is_finite &= fabsf(value) <= kLargestFinite;
    if (fabsf(value) > fabsf(largest)) largest = value;
  }
  if (!is_finite) largest = __uint_as_float(0x7fc0'0000U);
  const float other = __shfl_xor_sync(kWarp, largest, 1);
  if (largest != largest || other != other) return __uint_as_float(0x7fc0'0000U);
  const bool others =
      has_second_half() ? fabsf(other) >= fabsf(largest) : fabsf(other) > fabsf(largest);
  return others ? other : largest;
}

// A scale as it travels: a bfloat16.
struct BlockScale {
  std::uint32_t bits = 0;  // the lower 16

  __device__ __forceinline__ float value() const { return __uint_as_float(bits << 16); }
  // What codes are made with: its inverse, 0 where there is nothing but zeros, or no number.
  __device__ __forceinline__ float inverse() const {
    const float scale = value();
    return scale == 0 || scale != scale ? 0 : __frcp_rn(scale);
  }
};

// `exact`: the scale before it is rounded; `most`: bits of the largest that still decodes to finite
// numbers.
__device__ __forceinline__ BlockScale round_scale(float exact, std::uint32_t most) {
  const std::uint32_t rounded = __bfloat16_as_ushort(__float2bfloat16_rn(exact));
  const std::uint32_t magnitude = rounded & 0x7fffU;
  return {(rounded & 0x8000U) | (magnitude < most ? magnitude : most)};
}

// Codes of kBits bits, symmetric about zero but for the one that the largest element has.
template <int kBits>
struct IntegerCode {
  static constexpr int kLeast = -(1 << (kBits - 1)), kMost = -kLeast - 1;
  static constexpr std::uint32_t kMostScale = format_of(kBits == 8   ? Codec::Q8
                                                        : kBits == 6 ? Codec::Q6
                                                                     : Codec::Q4)
                                                  .most_scale;

  static __device__ __forceinline__ BlockScale scale_of(float largest) {
    if (largest != largest) return {kNanScale};
    if (fabsf(largest) < kLeastCodedMagnitude) return {};
    return round_scale(largest * (1.0F / kLeast), kMostScale);
  }
  // Biased, so that it is a number from 0 on.
  static __device__ __forceinline__ std::uint32_t encode(float value, float inverse) {
    const int code = __float2int_rn(__fmul_rn(value, inverse));
    return static_cast<std::uint32_t>(min(max(code, kLeast), kMost) - kLeast);
  }
  static __device__ __forceinline__ float decode(std::uint32_t code, float scale) {
    return __fmul_rn(__int2float_rn(static_cast<int>(code) + kLeast), scale);
  }
};

// e4m3, saturating.
struct Fp8Code {
  static constexpr float kMost = 448;
  static constexpr std::uint32_t kMostScale = format_of(Codec::Fp8).most_scale;

  static __device__ __forceinline__ BlockScale scale_of(float largest) {
    if (largest != largest) return {kNanScale};
    if (fabsf(largest) < kLeastCodedMagnitude) return {};
    return round_scale(__fdiv_rn(fabsf(largest), kMost), kMostScale);
  }
  static __device__ __forceinline__ std::uint32_t encode(float value, float inverse) {
    // A block of zeros has the code of +0 alone, whatever the signs of what it stands for.
    if (inverse == 0) return 0;
    return __nv_cvt_float_to_fp8(__fmul_rn(value, inverse), __NV_SATFINITE, __NV_E4M3);
  }
  static __device__ __forceinline__ float decode(std::uint32_t code, float scale) {
    const __half_raw half =
        __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3);
    return __fmul_rn(__half2float(__half(half)), scale);
  }
};

}  // namespace arcomm::device
