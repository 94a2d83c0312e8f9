// Sixteen neighbouring blocks, of which each pair of a warp's lanes has one (blocks.cuh), to and
// from the bytes that they are in memory: the formats of README.md beside this, so that a host
// could read them. A block's bytes lie on two, a group's on sixteen: it is put together in shared
// memory. All lanes of a warp call these together.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/codec/blocks.cuh"
#include "kernels/codec/extremes.cuh"
#include "kernels/codec/format.h"
#include "kernels/codec/packed_bits.h"
#include "kernels/lines/ll128.cuh"

namespace arcomm::device {

// kCodec: whose codes and scales; whether blocks are rotated is the caller's to do. A lane has
// vectors of kInVector elements of its block.
template <Codec kCodec, std::uint32_t kInVector>
struct PackedGroup {
  static constexpr CodecFormat kFormat = format_of(kCodec);
  static_assert(kFormat.bits != 0 && !kFormat.rotated);
  using Code = std::conditional_t<kFormat.is_fp8(), Fp8Code,
                                  IntegerCode<static_cast<int>(kFormat.bits), CodeBytes>>;
  static constexpr std::uint32_t kWords = Code::kWords;
  static_assert(kWords == kHalfBlock / 4 && kInVector % 4 == 0);  // four codes are neighbours
  static constexpr std::uint32_t kBlocks = kLl128Lanes / 2, kElements = kBlocks * kCodecBlock;
  static constexpr std::uint32_t kBlockBytes = kFormat.block_bytes();
  static constexpr std::uint32_t kBytes = kBlocks * kBlockBytes;
  static_assert(kBlockBytes % 2 == 0 && kBytes % sizeof(uint4) == 0);

  // What a lane has of its block: a byte for each code, and the scale.
  struct Half {
    std::uint32_t codes[kWords];
    BlockScale scale;
  };

  static __device__ __forceinline__ Half encode(const HalfBlock& half) {
    Half made;
    made.scale = scale_of_block(half);
    const float inverse = made.scale.inverse();
    Code::encode(half, inverse, made.codes);
    if constexpr (!kFormat.is_fp8()) {
      // Of what is no number there are no codes.
#pragma unroll
      for (std::uint32_t& codes : made.codes) codes = inverse == 0 ? kZeroCodes : codes;
    }
    return made;
  }
  // The products of codes and scale are exact, so that they may be fused with the sum.
  static __device__ __forceinline__ void add_to(HalfBlock& sum, const Half& half) {
    const float scale = half.scale.value();
    float codes[kHalfBlock];
    Code::decode(half.codes, codes);
#pragma unroll
    for (std::uint32_t i = 0; i < kHalfBlock; ++i)
      sum.values[i] = __fmaf_rn(codes[i], scale, sum.values[i]);
  }

  // The group's bytes; the warp meets before and behind.
  static __device__ __forceinline__ void put(unsigned char* group, const Half& half) {
    unsigned char* const block = group + block_of_lane() * kBlockBytes;
#pragma unroll
    for (std::uint32_t w = 0; w < kWords; ++w) {
      const std::uint32_t place = place_in_block<kInVector>(4 * w), codes = half.codes[w] ^ kBias;
      if constexpr (kFormat.bits == 8) {
        put_16(block + place, codes);
        put_16(block + place + 2, codes >> 16);
      } else {
        put_16(block + place / 2, pack_low(codes));
        if constexpr (kFormat.bits == 6)
          block[kCodecBlock / 2 + place / 4] = static_cast<unsigned char>(pack_high(codes));
      }
    }
    if (!is_second_lane()) put_16(block + kFormat.code_bytes(), half.scale.bits);
  }
  static __device__ __forceinline__ Half get(const unsigned char* group) {
    const unsigned char* const block = group + block_of_lane() * kBlockBytes;
    Half half;
#pragma unroll
    for (std::uint32_t w = 0; w < kWords; ++w) {
      const std::uint32_t place = place_in_block<kInVector>(4 * w);
      std::uint32_t codes;
      if constexpr (kFormat.bits == 8) {
        codes = get_16(block + place) | get_16(block + place + 2) << 16;
      } else {
        codes = unpack_low(get_16(block + place / 2));
        if constexpr (kFormat.bits == 6) codes |= unpack_high(block[kCodecBlock / 2 + place / 4]);
      }
      half.codes[w] = codes ^ kBias;
    }
    half.scale.bits = get_16(block + kFormat.code_bytes());
    return half;
  }

 private:
  static constexpr std::uint32_t kZeroCodes = kFormat.levels * 0x0101'0101U;
  // Codes of eight bits are whole numbers with a sign in memory, and biased in a lane.
  static constexpr std::uint32_t kBias = kFormat.bits == 8 && !kFormat.is_fp8() ? 0x8080'8080U : 0;

  static __device__ __forceinline__ std::uint32_t block_of_lane() {
    return lane_of_thread() / 2;
  }
  static __device__ __forceinline__ void put_16(unsigned char* to, std::uint32_t bits) {
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(bits);
  }
  static __device__ __forceinline__ std::uint32_t get_16(const unsigned char* from) {
    return *reinterpret_cast<const std::uint16_t*>(from);
  }

  static __device__ __forceinline__ BlockScale scale_of_block(const HalfBlock& half) {
    using Of = Extremes<HalfBlock::kBytes>;
    std::uint32_t bits[Of::kWords];
    half.bits(bits);
    const Of mine = Of::of(bits);
    Largest largest = mine.with(mine.of_neighbour()).largest();
    if constexpr (!kFormat.is_fp8()) {
      // Both signs have it: the one that comes first counts.
      if (__any_sync(kWarp, largest.is_tie && largest.magnitude != 0)) {
        const std::uint32_t here = first_of_magnitude<kInVector>(half, largest.magnitude);
        const std::uint32_t first = min(here, __shfl_xor_sync(kWarp, here, 1));
        largest.is_negative = first % 2 != 0;
      }
    }
    return device::scale_of<Code, HalfBlock>(largest);
  }
};

}  // namespace arcomm::device
