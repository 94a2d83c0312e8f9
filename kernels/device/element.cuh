// How an element lies in memory, in which type it is combined, and what the operations do to it:
// the rules of kernels/host/launch.h, element by element. The conversions are the hardware's, which
// rounds as kernels/host/element.h does; NaNs are made canonical here.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "proto/types.h"

namespace arcomm::device {

template <typename T>
struct Plain {
  using Stored = T;
  using Combined = T;
  static __device__ __forceinline__ T widen(T value) { return value; }
  static __device__ __forceinline__ T narrow(T value) {
    if constexpr (std::is_same_v<T, float>)
      return value != value ? __uint_as_float(0x7fc00000U) : value;
    if constexpr (std::is_same_v<T, double>) {
      return value != value ? __longlong_as_double(0x7ff8000000000000LL) : value;
    }
    return value;
  }
};

struct Float16 {
  using Stored = std::uint16_t;
  using Combined = float;
  static __device__ __forceinline__ float widen(Stored value) {
    return __half2float(__ushort_as_half(value));
  }
  static __device__ __forceinline__ Stored narrow(float value) {
    return value != value ? Stored{0x7e00} : __half_as_ushort(__float2half_rn(value));
  }
};

struct BFloat16 {
  using Stored = std::uint16_t;
  using Combined = float;
  static __device__ __forceinline__ float widen(Stored value) {
    return __uint_as_float(static_cast<std::uint32_t>(value) << 16);
  }
  static __device__ __forceinline__ Stored narrow(float value) {
    return value != value ? Stored{0x7fc0} : __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
};

// Small integers are combined in 32 bits and cut when they are stored: the same, modulo 2^n.
template <ReduceOp kOp, typename C>
__device__ __forceinline__ C combine(C so_far, C next) {
  if constexpr (kOp == ReduceOp::Sum || kOp == ReduceOp::Avg) {
    if constexpr (std::is_integral_v<C>) {
      using U = std::make_unsigned_t<C>;
      return static_cast<C>(static_cast<U>(static_cast<U>(so_far) + static_cast<U>(next)));
    } else {
      return so_far + next;
    }
  } else if constexpr (kOp == ReduceOp::Prod) {
    if constexpr (std::is_integral_v<C>) {
      // In 64 bits: 16-bit unsigned operands would be promoted to int and overflow.
      return static_cast<C>(static_cast<std::uint64_t>(so_far) * static_cast<std::uint64_t>(next));
    } else {
      return so_far * next;
    }
  } else if constexpr (kOp == ReduceOp::Min) {
    if constexpr (!std::is_integral_v<C>) {
      if (next != next) return next;
    }
    return next < so_far ? next : so_far;
  } else {
    if constexpr (!std::is_integral_v<C>) {
      if (next != next) return next;
    }
    return next > so_far ? next : so_far;
  }
}

template <ReduceOp kOp, typename C>
__device__ __forceinline__ C finish(C value, std::uint32_t ranks) {
  if constexpr (kOp == ReduceOp::Avg) {
    if constexpr (std::is_same_v<C, float>) {
      if (ranks == 2) return value * 0.5F;  // the same number, rounded the same way, without a call
      return __fdiv_rn(value, static_cast<float>(ranks));
    }
    // As an int, which is divided without a call, and so without a stack.
    if constexpr (std::is_integral_v<C> && sizeof(C) < sizeof(int))
      return static_cast<C>(value / static_cast<int>(ranks));
    return static_cast<C>(value / static_cast<C>(ranks));
  }
  return value;
}

// Neighbouring elements, and the same as one load or store moves them.
template <typename Stored, typename Whole>
union Moved {
  Whole whole;
  Stored elements[sizeof(Whole) / sizeof(Stored)];
};

// kBytes of neighbouring elements as they are combined: all ranks' elements of one place.
template <typename Format, int kBytes>
struct Pack {
  static constexpr int kCount = kBytes / static_cast<int>(sizeof(typename Format::Stored));
  typename Format::Combined values[kCount];

  __device__ __forceinline__ void widen(const typename Format::Stored (&stored)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = Format::widen(stored[i]);
  }
  template <ReduceOp kOp>
  __device__ __forceinline__ void combine_next(const typename Format::Stored (&stored)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = combine<kOp>(values[i], Format::widen(stored[i]));
    }
  }
  // The first rank's elements are what there is so far.
  template <ReduceOp kOp>
  __device__ __forceinline__ void combine_next(const typename Format::Stored (&stored)[kCount],
                                               bool is_first) {
    if (is_first) {
      widen(stored);
    } else {
      combine_next<kOp>(stored);
    }
  }
  template <ReduceOp kOp>
  __device__ __forceinline__ void store_to(typename Format::Stored (&stored)[kCount],
                                           std::uint32_t ranks) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) stored[i] = Format::narrow(finish<kOp>(values[i], ranks));
  }
};

// One place, element by element: what is left after whole vectors, or all of it where pointers lie
// differently. element_of(rank) loads a rank's.
template <typename Format, ReduceOp kOp, typename ElementOf>
__device__ __forceinline__ typename Format::Stored reduce_element(std::uint32_t ranks,
                                                                  ElementOf element_of) {
  using Stored = typename Format::Stored;
  Pack<Format, static_cast<int>(sizeof(Stored))> result;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const Stored element[1] = {element_of(rank)};
    result.template combine_next<kOp>(element, rank == 0);
  }
  Stored out[1];
  result.template store_to<kOp>(out, ranks);
  return out[0];
}

}  // namespace arcomm::device
