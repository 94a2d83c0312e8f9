// Which element of a block has the largest magnitude, as integers: the bits of floats have the
// order of signed integers among positive ones, and that of magnitudes among negative ones taken as
// unsigned. So the signed largest of all is the largest positive one, if there is any, and the
// unsigned largest the negative one. Infinities and NaNs come out as larger than all that is
// finite.
#pragma once

#include <cstdint>

#include "kernels/codec/code_words.h"
#include "kernels/lines/ll128.cuh"

namespace arcomm::device {

struct Largest {
  std::uint32_t magnitude;  // bits of an element, less the sign
  bool is_negative;
  bool is_tie;  // both signs have it: which comes first must be looked up
};

// Of elements of kBytes each. A key is a sign's largest magnitude, above all keys of a sign that
// has no element.
template <std::uint32_t kBytes>
struct Extremes;

template <>
struct Extremes<2> {
  static constexpr std::uint32_t kWords = kHalfBlock / 2;
  std::uint32_t keys;  // of positive ones in the lower half, of negative ones in the upper

  static __device__ __forceinline__ Extremes of(const std::uint32_t (&words)[kWords]) {
    std::uint32_t positive = words[0], negative = words[0];
#pragma unroll
    for (std::uint32_t i = 1; i < kWords; ++i) {
      positive = __vmaxs2(positive, words[i]);
      negative = __vmaxu2(negative, words[i]);
    }
    positive ^= 0x8000'8000U;
    return {
        __vmaxu2(__byte_perm(positive, negative, 0x5410), __byte_perm(positive, negative, 0x7632))};
  }
  __device__ __forceinline__ Extremes or_else(bool here, Extremes other) const {
    return {here ? keys : other.keys};
  }
  __device__ __forceinline__ Extremes of_neighbour() const {
    return {__shfl_xor_sync(kWarp, keys, 1)};
  }
  __device__ __forceinline__ Extremes with(Extremes other) const {
    return {__vmaxu2(keys, other.keys)};
  }
  __device__ __forceinline__ Largest largest() const {
    const std::uint32_t positive = keys & 0xffffU, negative = keys >> 16;
    return {max(positive, negative) & 0x7fffU, negative > positive, negative == positive};
  }
};

template <>
struct Extremes<4> {
  static constexpr std::uint32_t kWords = kHalfBlock;
  std::uint32_t positive, negative;

  static __device__ __forceinline__ Extremes of(const std::uint32_t (&words)[kWords]) {
    auto positive = static_cast<std::int32_t>(words[0]);
    std::uint32_t negative = words[0];
#pragma unroll
    for (std::uint32_t i = 1; i < kWords; ++i) {
      positive = max(positive, static_cast<std::int32_t>(words[i]));
      negative = max(negative, words[i]);
    }
    return {static_cast<std::uint32_t>(positive) ^ 0x8000'0000U, negative};
  }
  __device__ __forceinline__ Extremes or_else(bool here, Extremes other) const {
    return {here ? positive : other.positive, here ? negative : other.negative};
  }
  __device__ __forceinline__ Extremes of_neighbour() const {
    return {__shfl_xor_sync(kWarp, positive, 1), __shfl_xor_sync(kWarp, negative, 1)};
  }
  __device__ __forceinline__ Extremes with(Extremes other) const {
    return {max(positive, other.positive), max(negative, other.negative)};
  }
  __device__ __forceinline__ Largest largest() const {
    return {max(positive, negative) & 0x7fff'ffffU, negative > positive, negative == positive};
  }
};

}  // namespace arcomm::device
