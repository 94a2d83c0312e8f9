// Between a lane's half blocks (blocks.cuh) and its part of a packet: codes in words and scales,
// and which of them other lanes carry.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/codec/blocks.cuh"
#include "kernels/codec/carried.cuh"
#include "kernels/codec/extremes.cuh"
#include "kernels/codec/format.h"
#include "kernels/lines/ll128.cuh"

namespace arcomm::device {

// kPairs of lanes have kTurns blocks each, of elements of which a vector has kInVector.
template <typename Code, std::uint32_t kPairs, std::uint32_t kTurns, std::uint32_t kInVector>
struct PacketCodes {
  using Packet = LaneData;

  // A lane has the words of its codes one turn's after the other, and spills those that are more
  // than its own. Scales are carried behind them, those of the lanes for each two turns: one lane
  // of a pair finds that of the first of them, the other one that of the second.
  static constexpr std::uint32_t kWordsOfTurn = Code::kWords, kLanesWithBlocks = 2 * kPairs;
  static constexpr std::uint32_t kSpilled =
      kTurns * kWordsOfTurn > kLaneWords ? kTurns* kWordsOfTurn - kLaneWords : 0;
  static_assert(kSpilled <= 1);
  static constexpr std::uint32_t kSpilledBytes = kSpilled * 4 * kLanesWithBlocks;
  static constexpr std::uint32_t kCarriedBytes = kSpilledBytes + kCodecScaleBytes * kPairs * kTurns;
  using Carry = Carried<kLanesWithBlocks, kCarriedBytes>;
  static constexpr std::uint32_t scales_offset(std::uint32_t turn) {
    return kSpilledBytes + turn * kPairs * kCodecScaleBytes;
  }

  using Words = std::uint32_t[kWordsOfTurn];

  // What a lane sends, as its blocks are encoded one after the other.
  class Sealed {
   public:
    // The blocks of turns kFirst and kFirst + 1, or of a last one alone.
    template <std::uint32_t kFirst, std::uint32_t kCount, typename HalfOf>
    __device__ __forceinline__ void add(const HalfOf (&halves)[kCount]) {
      static_assert(kFirst % 2 == 0 && kCount <= 2);
      using Of = Extremes<HalfOf::kBytes>;
      Of extremes[kCount];
#pragma unroll
      for (std::uint32_t n = 0; n < kCount; ++n) {
        std::uint32_t bits[Of::kWords];
        halves[n].bits(bits);
        extremes[n] = Of::of(bits);
      }
      const bool is_second = is_second_lane();
      Largest largest;
      if constexpr (kCount == 2) {
        const Of mine = extremes[1].or_else(is_second, extremes[0]);
        const Of theirs = extremes[0].or_else(is_second, extremes[1]).of_neighbour();
        largest = mine.with(theirs).largest();
      } else {
        largest = extremes[0].with(extremes[0].of_neighbour()).largest();
      }
      if constexpr (!std::is_same_v<Code, Fp8Code>) {
        if (__any_sync(kWarp, largest.is_tie && largest.magnitude != 0)) break_tie(halves, largest);
      }
      const BlockScale scale = scale_of<Code, HalfOf>(largest);
      const float inverse = scale.inverse();
      scales_[kFirst / 2] = scale.bits;
      if constexpr (kCount == 2) {
        const float theirs = __shfl_xor_sync(kWarp, inverse, 1);
        put<kFirst>(halves[0], is_second ? theirs : inverse);
        put<kFirst + 1>(halves[1], is_second ? inverse : theirs);
      } else {
        put<kFirst>(halves[0], inverse);
      }
    }
    __device__ __forceinline__ Packet packet() {
      const std::uint32_t lane = lane_of_thread();
      Carry::begin();
      if (lane < kLanesWithBlocks) {
        if constexpr (kSpilled != 0) Carry::template bytes<std::uint32_t>(0)[lane] = spilled_;
#pragma unroll
        for (std::uint32_t turn = 0; turn < kTurns; turn += 2) {
          auto* const scales = Carry::template bytes<std::uint16_t>(scales_offset(turn));
          const auto scale = static_cast<std::uint16_t>(scales_[turn / 2]);
          if (turn + 1 < kTurns) {
            scales[lane] = scale;
          } else if (lane % 2 == 0) {
            scales[lane / 2] = scale;
          }
        }
      }
      Carry::put_into(lane_);
      return lane_.data;
    }

   private:
    template <std::uint32_t kTurn, typename HalfOf>
    __device__ __forceinline__ void put(const HalfOf& half, float inverse) {
      Words words;
      Code::encode(half, inverse, words);
#pragma unroll
      for (std::uint32_t w = 0; w < kWordsOfTurn; ++w) {
        constexpr std::uint32_t kAt = kTurn * kWordsOfTurn;
        (kAt + w < kLaneWords ? lane_.words[kAt + w] : spilled_) = words[w];
      }
    }
    // Which sign comes first, where both have the largest magnitude: of the block whose scale this
    // lane finds.
    template <std::uint32_t kCount, typename HalfOf>
    static __device__ __forceinline__ void break_tie(const HalfOf (&halves)[kCount],
                                                     Largest& largest) {
#pragma unroll
      for (std::uint32_t n = 0; n < kCount; ++n) {
        const std::uint32_t owner = kCount == 2 ? (lane_of_thread() & ~1U) | n : lane_of_thread();
        const std::uint32_t magnitude =
            __shfl_sync(kWarp, largest.magnitude, static_cast<int>(owner));
        const std::uint32_t here = first_of_magnitude_apart<kInVector>(halves[n], magnitude);
        const std::uint32_t first = min(here, __shfl_xor_sync(kWarp, here, 1));
        if (owner == lane_of_thread()) largest.is_negative = first % 2 != 0;
      }
    }

    LaneWords lane_{};
    std::uint32_t spilled_ = 0, scales_[(kTurns + 1) / 2] = {};
  };

  // What a lane has received, decoded block by block.
  class Opened {
   public:
    __device__ __forceinline__ explicit Opened(const Packet& packet) {
      lane_.data = packet;
      const std::uint32_t lane = lane_of_thread(), pair = lane / 2;
      Carry::take_from(lane_);
      if constexpr (kSpilled != 0) spilled_ = Carry::template bytes<std::uint32_t>(0)[lane];
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; turn += 2) {
        const std::uint32_t offset = scales_offset(turn);
        scales_[turn / 2] = turn + 1 < kTurns ? Carry::template bytes<std::uint32_t>(offset)[pair]
                                              : Carry::template bytes<std::uint16_t>(offset)[pair];
      }
    }
    // The products of codes and scale are exact, so that they may be fused with the sum.
    // `factor`: a power of two, with which they are exact, too.
    __device__ __forceinline__ void put(std::uint32_t turn, HalfBlock& half,
                                        float factor = 1) const {
      const float scale = __fmul_rn(this->scale(turn), factor);
      float codes[kHalfBlock];
      decode(turn, codes);
#pragma unroll
      for (std::uint32_t i = 0; i < kHalfBlock; ++i) half.values[i] = __fmul_rn(codes[i], scale);
    }
    __device__ __forceinline__ void add_to(std::uint32_t turn, HalfBlock& half,
                                           float factor = 1) const {
      const float scale = __fmul_rn(this->scale(turn), factor);
      float codes[kHalfBlock];
      decode(turn, codes);
#pragma unroll
      for (std::uint32_t i = 0; i < kHalfBlock; ++i)
        half.values[i] = __fmaf_rn(codes[i], scale, half.values[i]);
    }
    __device__ __forceinline__ void words(std::uint32_t turn, Words& words) const {
#pragma unroll
      for (std::uint32_t w = 0; w < kWordsOfTurn; ++w) {
        const std::uint32_t at = turn * kWordsOfTurn + w;
        words[w] = at < kLaneWords ? lane_.words[at] : spilled_;
      }
    }
    // Of turns 2 n and 2 n + 1, the first one's in the lower half.
    __device__ __forceinline__ std::uint32_t scales(std::uint32_t n) const {
      return scales_[n];
    }
    __device__ __forceinline__ float scale(std::uint32_t turn) const {
      const std::uint32_t both = scales_[turn / 2];
      return __uint_as_float(turn % 2 == 0 ? both << 16 : both & 0xffff'0000U);
    }

   private:
    __device__ __forceinline__ void decode(std::uint32_t turn, float (&codes)[kHalfBlock]) const {
      Words of_turn;
      words(turn, of_turn);
      Code::decode(of_turn, codes);
    }

    LaneWords lane_;
    std::uint32_t spilled_ = 0, scales_[(kTurns + 1) / 2];
  };
};

}  // namespace arcomm::device
