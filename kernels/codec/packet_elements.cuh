// How a warp reads a packet's elements from an input and writes them to an output, a lane's vectors
// as blocks.cuh has them. In turn t lane pair p has block t * kPairs + p of the packet.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/codec/blocks.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/lines/ll128.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

// A vector at element `at`, of which those below `last` are there; zeros for the others. Out of
// line, as it is what a range ends with, or what no vectors can move.
template <typename Stored>
__device__ __noinline__ uint4 read_some(const Stored* from, std::uint64_t at, std::uint64_t last,
                                        bool vectors) {
  constexpr std::uint32_t kCount = sizeof(uint4) / sizeof(Stored);
  if (vectors && at + kCount <= last)
    return load_past_l1(reinterpret_cast<const uint4*>(from + at));
  Moved<Stored, uint4> vector{};
#pragma unroll
  for (std::uint32_t i = 0; i < kCount; ++i) {
    if (at + i < last) vector.elements[i] = load_past_l1(from + at + i);
  }
  return vector.whole;
}
template <typename Stored>
__device__ __noinline__ void write_some(Stored* to, std::uint64_t at, std::uint64_t last,
                                        bool vectors, uint4 whole) {
  constexpr std::uint32_t kCount = sizeof(uint4) / sizeof(Stored);
  if (vectors && at + kCount <= last) {
    *reinterpret_cast<uint4*>(to + at) = whole;
    return;
  }
  const Moved<Stored, uint4> vector{.whole = whole};
#pragma unroll
  for (std::uint32_t i = 0; i < kCount; ++i) {
    if (at + i < last) to[at + i] = vector.elements[i];
  }
}

// Of `range`, packet by packet; blocks are counted from its first element.
template <typename Stored, std::uint32_t kPairs, std::uint32_t kTurns>
class PacketElements {
 public:
  static constexpr std::uint32_t kInVector = sizeof(uint4) / sizeof(Stored);
  static constexpr std::uint32_t kVectors = kHalfBlock / kInVector;  // of a lane's half block
  static constexpr std::uint64_t kPacketElements = std::uint64_t{kPairs} * kTurns * kCodecBlock;
  // What a lane has of a block, and of a packet's, as it lies in memory.
  struct Half {
    uint4 vectors[kVectors];
  };
  struct Halves {
    Half of_turn[kTurns];
  };

  // `vectors`: inputs and outputs lie on 16 bytes.
  __device__ __forceinline__ PacketElements(ElementRange range, bool vectors)
      : range_(range), vectors_(vectors) {}

  // Past L1, so that a kernel may read before it knows its epoch. Lanes that have no blocks get
  // those of others, or zeros.
  __device__ __forceinline__ Halves read(const Stored* from, std::uint64_t packet) const {
    Halves halves;
    if (is_whole(packet)) {
      const auto* vectors =
          reinterpret_cast<const uint4*>(from + first_of(packet) + place(kLanesWithBlocks));
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
#pragma unroll
        for (std::uint32_t v = 0; v < kVectors; ++v)
          halves.of_turn[turn].vectors[v] = load_past_l1(vectors + vector(turn, v));
      }
    } else {
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
#pragma unroll
        for (std::uint32_t v = 0; v < kVectors; ++v) {
          const std::uint64_t at =
              first_of(packet) + place(kLl128Lanes) + vector(turn, v) * kInVector;
          halves.of_turn[turn].vectors[v] =
              read_some(from, at, has_blocks() ? range_.last : at, vectors_);
        }
      }
    }
    return halves;
  }
  __device__ __forceinline__ void write(Stored* to, std::uint64_t packet, std::uint32_t turn,
                                        const Half& half) const {
    const std::uint64_t first = first_of(packet) + place(kLl128Lanes);
    if (!has_blocks()) return;
    if (is_whole(packet)) {
#pragma unroll
      for (std::uint32_t v = 0; v < kVectors; ++v)
        reinterpret_cast<uint4*>(to + first)[vector(turn, v)] = half.vectors[v];
    } else {
#pragma unroll
      for (std::uint32_t v = 0; v < kVectors; ++v)
        write_some(to, first + vector(turn, v) * kInVector, range_.last, vectors_, half.vectors[v]);
    }
  }

 private:
  static constexpr std::uint32_t kLanesWithBlocks = 2 * kPairs;

  static __device__ __forceinline__ bool has_blocks() {
    return lane_of_thread() < kLanesWithBlocks;
  }
  __device__ __forceinline__ bool is_whole(std::uint64_t packet) const {
    return vectors_ && first_of(packet) + kPacketElements <= range_.last;
  }
  __device__ __forceinline__ std::uint64_t first_of(std::uint64_t packet) const {
    return range_.first + packet * kPacketElements;
  }
  // In a packet, of the first vector of the lane; lanes from `lanes` on have the places of others.
  static __device__ __forceinline__ std::uint32_t place(std::uint32_t lanes) {
    const std::uint32_t lane = lane_of_thread() < lanes ? lane_of_thread() : lane_of_thread() % 2;
    return lane / 2 * kCodecBlock + lane % 2 * kInVector;
  }
  // Behind that one.
  static constexpr std::uint32_t vector(std::uint32_t turn, std::uint32_t v) {
    return turn * kPairs * (kCodecBlock / kInVector) + 2 * v;
  }

  ElementRange range_;
  bool vectors_;
};

// ---- between a half block in memory and the values of it ----

// Half: PacketElements' own; To: one of blocks.cuh.
template <typename Format, typename To, typename Half>
__device__ __forceinline__ To values_of(const Half& half) {
  To to;
  if constexpr (sizeof(To) == sizeof(Half)) {
    __builtin_memcpy(&to, &half, sizeof(to));
  } else {
    HalfBlockOf16Bits<Format> narrow;
    __builtin_memcpy(&narrow, &half, sizeof(narrow));
#pragma unroll
    for (std::uint32_t j = 0; j < kPairsOfHalf; ++j) {
      const float2 pair = narrow.pair(j);
      to.values[2 * j] = pair.x;
      to.values[2 * j + 1] = pair.y;
    }
  }
  return to;
}

// Rounded to the type, and NaNs made canonical: arithmetic makes of any NaN the positive one with
// all bits set, and of all positive bits those alone are above the canonical one's.
template <typename Format>
__device__ __forceinline__ std::uint32_t narrow_pair(float first, float second) {
  if constexpr (std::is_same_v<Format, Float16>) {
    const __half2 both = __floats2half2_rn(first, second);
    return __vmins2(reinterpret_cast<const std::uint32_t&>(both), 0x7e00'7e00U);
  } else {
    static_assert(std::is_same_v<Format, BFloat16>);
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    return __vmins2(reinterpret_cast<const std::uint32_t&>(both), 0x7fc0'7fc0U);
  }
}
template <typename Format, typename Half>
__device__ __forceinline__ Half narrowed(const HalfBlock& values) {
  std::uint32_t words[sizeof(Half) / 4];
#pragma unroll
  for (std::uint32_t w = 0; w < sizeof(Half) / 4; ++w) {
    if constexpr (sizeof(Half) == sizeof(HalfBlock)) {
      words[w] = static_cast<std::uint32_t>(min(__float_as_int(values.values[w]), 0x7fc0'0000));
    } else {
      words[w] = narrow_pair<Format>(values.values[2 * w], values.values[2 * w + 1]);
    }
  }
  Half half;
  __builtin_memcpy(&half, words, sizeof(half));
  return half;
}

}  // namespace arcomm::device
