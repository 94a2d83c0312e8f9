// Wire formats of codes and scales (blocks.cuh) in LL128 packets. Two neighbouring lanes share
// blocks, which they take in turns: in turn t lane pair p has block t * kPairs + p of the packet,
// so that neighbouring lanes read and write neighbouring elements. A lane's codes travel in its own
// 32 bytes; what finds no place there, and the scales, in those of the lanes behind. CodedOf, at
// the end, is the format of a codec by its number.
#pragma once

#include <cstdint>

#include "kernels/codec/blocks.cuh"
#include "kernels/codec/concept.cuh"
#include "kernels/codec/divisor.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/lines/ll128.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

inline constexpr std::uint32_t kLaneWords = sizeof(LaneData) / 4;

// A lane's words by number. Numbers are known when it is compiled, as registers have none.
union LaneWords {
  LaneData data;
  std::uint32_t words[kLaneWords];
};

// A word of each of kSources lanes travels in the lanes from kFirst on, eight to a lane. kStep: the
// sources are lanes 0, kStep, 2 * kStep and so on.
template <std::uint32_t kFirst, std::uint32_t kSources, std::uint32_t kStep>
struct CarriedWords {
  static constexpr std::uint32_t kLast = kFirst + (kSources + kLaneWords - 1) / kLaneWords;
  static_assert(kLast < kLl128Lanes);  // the last lane carries nothing

  static __device__ __forceinline__ bool carries(std::uint32_t lane) {
    return lane >= kFirst && lane < kLast;
  }
  // `word`: this lane's, where it is a source. Into `packet`, where this lane carries.
  static __device__ __forceinline__ void gather(std::uint32_t word, LaneWords& packet) {
    const std::uint32_t lane = lane_of_thread();
#pragma unroll
    for (std::uint32_t i = 0; i < kLaneWords; ++i) {
      const std::uint32_t source = ((lane - kFirst) * kLaneWords + i) * kStep;
      const std::uint32_t its = __shfl_sync(kWarp, word, static_cast<int>(source % kLl128Lanes));
      if (carries(lane)) packet.words[i] = its;
    }
  }
  // The word of source `number`.
  static __device__ __forceinline__ std::uint32_t scatter(const LaneWords& packet,
                                                          std::uint32_t number) {
    std::uint32_t word = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kLaneWords; ++i) {
      const std::uint32_t its = __shfl_sync(
          kWarp, packet.words[i], static_cast<int>((kFirst + number / kLaneWords) % kLl128Lanes));
      if (number % kLaneWords == i) word = its;
    }
    return word;
  }
};

// ---- how codes of so many bits share a lane's words ----

// kTurns blocks of a lane; put() and take() have the half block's codes of one turn.
template <int kBits>
struct CodeLayout;

template <>
struct CodeLayout<8> {
  static constexpr std::uint32_t kPairs = 14, kTurns = 2;
  static constexpr bool kSpills = false;
  static __device__ __forceinline__ void put(const std::uint32_t (&codes)[kHalfBlock],
                                             std::uint32_t turn, LaneWords& lane, std::uint32_t&) {
#pragma unroll
    for (std::uint32_t word = 0; word < 4; ++word) {
      const std::uint32_t* const four = codes + 4 * word;
      lane.words[4 * turn + word] = four[0] | four[1] << 8 | four[2] << 16 | four[3] << 24;
    }
  }
  static __device__ __forceinline__ std::uint32_t take(const LaneWords& lane, std::uint32_t,
                                                       std::uint32_t turn, std::uint32_t i) {
    return lane.words[4 * turn + i / 4] >> (8 * (i % 4)) & 0xffU;
  }
};

template <>
struct CodeLayout<4> {
  static constexpr std::uint32_t kPairs = 13, kTurns = 4;
  static constexpr bool kSpills = false;
  static __device__ __forceinline__ void put(const std::uint32_t (&codes)[kHalfBlock],
                                             std::uint32_t turn, LaneWords& lane, std::uint32_t&) {
#pragma unroll
    for (std::uint32_t word = 0; word < 2; ++word) {
      std::uint32_t eight = 0;
#pragma unroll
      for (std::uint32_t i = 0; i < 8; ++i) eight |= codes[8 * word + i] << (4 * i);
      lane.words[2 * turn + word] = eight;
    }
  }
  static __device__ __forceinline__ std::uint32_t take(const LaneWords& lane, std::uint32_t,
                                                       std::uint32_t turn, std::uint32_t i) {
    return lane.words[2 * turn + i / 8] >> (4 * (i % 8)) & 0xfU;
  }
};

// The lower four bits of all turns, the upper two of the first two; those of the last one spill.
template <>
struct CodeLayout<6> {
  static constexpr std::uint32_t kPairs = 12, kTurns = 3;
  static constexpr bool kSpills = true;
  static __device__ __forceinline__ void put(const std::uint32_t (&codes)[kHalfBlock],
                                             std::uint32_t turn, LaneWords& lane,
                                             std::uint32_t& spilled) {
    std::uint32_t upper = 0;
#pragma unroll
    for (std::uint32_t word = 0; word < 2; ++word) {
      std::uint32_t lower = 0;
#pragma unroll
      for (std::uint32_t i = 0; i < 8; ++i) {
        lower |= (codes[8 * word + i] & 0xfU) << (4 * i);
        upper |= codes[8 * word + i] >> 4 << (2 * (8 * word + i));
      }
      lane.words[2 * turn + word] = lower;
    }
    (turn < 2 ? lane.words[6 + turn] : spilled) = upper;
  }
  static __device__ __forceinline__ std::uint32_t take(const LaneWords& lane, std::uint32_t spilled,
                                                       std::uint32_t turn, std::uint32_t i) {
    const std::uint32_t upper = turn < 2 ? lane.words[6 + turn] : spilled;
    return (lane.words[2 * turn + i / 8] >> (4 * (i % 8)) & 0xfU) | (upper >> (2 * i) & 3U) << 4;
  }
};

template <typename ElementFormat, typename Code, int kBits, bool kRotated>
struct CodedCodec {
  using Format = ElementFormat;
  using Stored = typename Format::Stored;
  using Layout = CodeLayout<kBits>;
  static constexpr std::uint32_t kPairs = Layout::kPairs, kTurns = Layout::kTurns;
  static constexpr std::uint64_t kPacketElements = std::uint64_t{kPairs} * kTurns * kCodecBlock;

  // Words of scales of a pair of lanes, and which lanes carry them.
  static constexpr std::uint32_t kScaleWords = (kTurns + 1) / 2;
  using Spilled = CarriedWords<2 * kPairs, Layout::kSpills ? 2 * kPairs : 0, 1>;
  using FirstScales = CarriedWords<Spilled::kLast, kPairs, 2>;
  using SecondScales = CarriedWords<FirstScales::kLast, kScaleWords == 2 ? kPairs : 0, 2>;

  static constexpr bool serves(ReduceOp op) { return op == ReduceOp::Sum || op == ReduceOp::Avg; }

  using Packet = LaneData;
  static constexpr std::uint32_t kHalfVectors = kHalfBlock * sizeof(Stored) / 16;
  // What a lane has of a block in an input or output.
  union Half {
    uint4 vectors[kHalfVectors];
    Stored elements[kHalfBlock];
  };
  struct Output {
    Half halves[kTurns];
  };

  // What two ranks sent for one place: combined when it is written.
  template <ReduceOp kOp>
  struct PairOutput {
    Packet first, second;
  };

  // ---- between a lane's half blocks and its packet ----

  // What a lane sends, as its blocks are encoded one after the other.
  class Sealed {
   public:
    __device__ __forceinline__ void add(std::uint32_t turn, const HalfBlock& half) {
      const BlockScale scale = Code::scale_of(find_largest(half));
      const float inverse = scale.inverse();
      std::uint32_t codes[kHalfBlock];
#pragma unroll
      for (std::uint32_t i = 0; i < kHalfBlock; ++i)
        codes[i] = Code::encode(half.values[i], inverse);
      Layout::put(codes, turn, lane_, spilled_);
      scales_[turn / 2] |= scale.bits << (16 * (turn % 2));
    }
    __device__ __forceinline__ Packet packet() {
      if constexpr (Layout::kSpills) Spilled::gather(spilled_, lane_);
      FirstScales::gather(scales_[0], lane_);
      if constexpr (kScaleWords == 2) SecondScales::gather(scales_[1], lane_);
      return lane_.data;
    }

   private:
    LaneWords lane_{};
    std::uint32_t spilled_ = 0, scales_[kScaleWords] = {};
  };

  // What a lane has received, decoded block by block.
  class Opened {
   public:
    __device__ __forceinline__ explicit Opened(const Packet& packet) {
      lane_.data = packet;
      const std::uint32_t number = lane_of_thread(), pair = number / 2;
      if constexpr (Layout::kSpills) spilled_ = Spilled::scatter(lane_, number);
      scales_[0] = FirstScales::scatter(lane_, pair);
      if constexpr (kScaleWords == 2) scales_[1] = SecondScales::scatter(lane_, pair);
    }
    __device__ __forceinline__ float element(std::uint32_t turn, std::uint32_t i) const {
      const BlockScale scale{scales_[turn / 2] >> (16 * (turn % 2)) & 0xffffU};
      return Code::decode(Layout::take(lane_, spilled_, turn, i), scale.value());
    }

   private:
    LaneWords lane_;
    std::uint32_t spilled_ = 0, scales_[kScaleWords];
  };

  // A sum of decoded elements as it lies in an output.
  static __device__ __forceinline__ Half finish_half(HalfBlock half, const Divisor& divisor) {
    if constexpr (kRotated) rotate_back(half);
    divisor.divide(half);
    Half out;
#pragma unroll
    for (std::uint32_t i = 0; i < kHalfBlock; ++i) out.elements[i] = Format::narrow(half.values[i]);
    return out;
  }

  // Elements of `range`, packet by packet; blocks are counted from its first element.
  class Packets {
   public:
    __device__ __forceinline__ Packets(ElementRange range, bool vectors)
        : range_(range), vectors_(vectors) {}

    __device__ __forceinline__ Packet read(const void* send, std::uint64_t packet) const {
      const auto* from = static_cast<const Stored*>(send);
      Sealed sealed;
      Half stored[kTurns];  // all of it is on its way before the first block is looked at
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn)
        stored[turn] = read_half(from, element(packet, turn));
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
        HalfBlock half;
#pragma unroll
        for (std::uint32_t i = 0; i < kHalfBlock; ++i)
          half.values[i] = Format::widen(stored[turn].elements[i]);
        if constexpr (kRotated) rotate(half);
        sealed.add(turn, half);
      }
      return sealed.packet();
    }
    __device__ __forceinline__ void write(void* recv, std::uint64_t packet,
                                          const Output& output) const {
      auto* to = static_cast<Stored*>(recv);
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn)
        write_half(to, element(packet, turn), output.halves[turn]);
    }
    template <ReduceOp kOp>
    __device__ __forceinline__ void write(void* recv, std::uint64_t packet,
                                          const PairOutput<kOp>& output) const {
      write_sum(recv, packet, output.first, output.second, divisor_of<kOp>(2));
    }
    // What two ranks sent for one place. Here and below it decodes block by block, which takes far
    // fewer registers than an Output.
    __device__ __forceinline__ void write_sum(void* recv, std::uint64_t packet,
                                              const Packet& of_first, const Packet& of_second,
                                              const Divisor& divisor) const {
      const Opened first(of_first), second(of_second);
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
        HalfBlock half;
#pragma unroll
        for (std::uint32_t i = 0; i < kHalfBlock; ++i)
          half.values[i] = first.element(turn, i) + second.element(turn, i);
        write_half(static_cast<Stored*>(recv), element(packet, turn), finish_half(half, divisor));
      }
    }
    // What an owner sent, or sends: a result.
    __device__ __forceinline__ void write_decoded(void* recv, std::uint64_t packet,
                                                  const Packet& result) const {
      const Opened opened(result);
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
        HalfBlock half;
#pragma unroll
        for (std::uint32_t i = 0; i < kHalfBlock; ++i) half.values[i] = opened.element(turn, i);
        write_half(static_cast<Stored*>(recv), element(packet, turn),
                   finish_half(half, Divisor(1)));
      }
    }

   private:
    // Of this lane's half block; behind the range where it has none.
    __device__ __forceinline__ std::uint64_t element(std::uint64_t packet,
                                                     std::uint32_t turn) const {
      const std::uint32_t lane = lane_of_thread();
      if (lane >= 2 * kPairs) return range_.last;
      return range_.first + packet * kPacketElements +
             (turn * kPairs * 2 + lane) * std::uint64_t{kHalfBlock};
    }
    // Past L1, so that a kernel may read before it knows its epoch.
    __device__ __forceinline__ Half read_half(const Stored* from, std::uint64_t at) const {
      Half half{};
      if (vectors_ && at + kHalfBlock <= range_.last) {
#pragma unroll
        for (std::uint32_t v = 0; v < kHalfVectors; ++v)
          half.vectors[v] = load_past_l1(reinterpret_cast<const uint4*>(from + at) + v);
      } else if (at < range_.last) {
        read_elements(from, at, range_.last, half);
      }
      return half;
    }
    __device__ __forceinline__ void write_half(Stored* to, std::uint64_t at,
                                               const Half& half) const {
      if (vectors_ && at + kHalfBlock <= range_.last) {
#pragma unroll
        for (std::uint32_t v = 0; v < kHalfVectors; ++v)
          reinterpret_cast<uint4*>(to + at)[v] = half.vectors[v];
      } else if (at < range_.last) {
        write_elements(to, at, range_.last, half);
      }
    }
    static __device__ __forceinline__ void read_elements(const Stored* from, std::uint64_t at,
                                                         std::uint64_t last, Half& half) {
#pragma unroll
      for (std::uint32_t i = 0; i < kHalfBlock; ++i) {
        if (at + i < last) half.elements[i] = load_past_l1(from + at + i);
      }
    }
    static __device__ __forceinline__ void write_elements(Stored* to, std::uint64_t at,
                                                          std::uint64_t last, const Half& half) {
#pragma unroll
      for (std::uint32_t i = 0; i < kHalfBlock; ++i) {
        if (at + i < last) to[at + i] = half.elements[i];
      }
    }

    ElementRange range_;
    bool vectors_;
  };

  // A lane's part of all ranks' packets of one place, one after the other in rank order: of the
  // blocks of turns kFirst to kLast - 1.
  template <std::uint32_t kFirst, std::uint32_t kLast>
  class PacketSum {
   public:
    __device__ __forceinline__ void combine_next(const Packet& packet, bool is_first) {
      const Opened opened(packet);
#pragma unroll
      for (std::uint32_t turn = kFirst; turn < kLast; ++turn) {
#pragma unroll
        for (std::uint32_t i = 0; i < kHalfBlock; ++i) {
          float& so_far = halves_[turn - kFirst].values[i];
          so_far = is_first ? opened.element(turn, i) : so_far + opened.element(turn, i);
        }
      }
    }
    // Divided before it is encoded once more: whoever decodes it knows nothing of the ranks.
    __device__ __forceinline__ void seal(Sealed& sealed, const Divisor& divisor) {
#pragma unroll
      for (std::uint32_t turn = kFirst; turn < kLast; ++turn) {
        divisor.divide(halves_[turn - kFirst]);
        sealed.add(turn, halves_[turn - kFirst]);
      }
    }

   protected:
    HalfBlock halves_[kLast - kFirst];
  };
  template <ReduceOp kOp>
  class PacketResult : public PacketSum<0, kTurns> {
   public:
    __device__ __forceinline__ Packet as_packet(std::uint32_t ranks) const {
      Sealed sealed;
      auto sum = *this;
      sum.seal(sealed, divisor_of<kOp>(ranks));
      return sealed.packet();
    }
    __device__ __forceinline__ Output as_output(std::uint32_t ranks) const {
      Output output;
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn)
        output.halves[turn] = finish_half(this->halves_[turn], divisor_of<kOp>(ranks));
      return output;
    }
  };

  // The same of two ranks.
  template <ReduceOp kOp>
  class PairResult {
   public:
    __device__ __forceinline__ void combine_next(const Packet& packet, bool is_first) {
      (is_first ? output_.first : output_.second) = packet;
    }
    __device__ __forceinline__ PairOutput<kOp> as_output(std::uint32_t) const { return output_; }

   private:
    PairOutput<kOp> output_;
  };

  static __device__ __forceinline__ Output decode(const Packet& packet) {
    const Opened opened(packet);
    Output output;
#pragma unroll
    for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
      HalfBlock half;
#pragma unroll
      for (std::uint32_t i = 0; i < kHalfBlock; ++i) half.values[i] = opened.element(turn, i);
      output.halves[turn] = finish_half(half, Divisor(1));
    }
    return output;
  }
};

template <Codec kCodec>
struct CodeOf {
  using Type = IntegerCode<static_cast<int>(format_of(kCodec).bits)>;
};
template <>
struct CodeOf<Codec::Fp8> {
  using Type = Fp8Code;
};
// Of any codec but None.
template <typename ElementFormat, Codec kCodec>
using CodedOf = CodedCodec<ElementFormat, typename CodeOf<kCodec>::Type,
                           static_cast<int>(format_of(kCodec).bits), format_of(kCodec).rotated>;
static_assert(PacketCodec<CodedOf<Float16, Codec::Q6>>);
static_assert(CodedOf<Float16, Codec::Q8>::kPacketElements == packet_elements_of(Codec::Q8) &&
              CodedOf<Float16, Codec::Q6>::kPacketElements == packet_elements_of(Codec::Q6) &&
              CodedOf<Float16, Codec::Q4>::kPacketElements == packet_elements_of(Codec::Q4));

}  // namespace arcomm::device
