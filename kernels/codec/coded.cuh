// Wire formats of codes and scales (blocks.cuh) in LL128 packets. Two neighbouring lanes share
// blocks, which they take in turns (packet_elements.cuh). A lane's codes travel in its own 32
// bytes; what finds no place there, and the scales, in those of the lanes behind (carried.cuh).
// CodedOf, at the end, is the format of a codec by its number.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/codec/blocks.cuh"
#include "kernels/codec/concept.cuh"
#include "kernels/codec/divisor.cuh"
#include "kernels/codec/half_sum.cuh"
#include "kernels/codec/packet_codes.cuh"
#include "kernels/codec/packet_elements.cuh"
#include "kernels/device/element.cuh"
#include "kernels/lines/ll128.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

template <typename ElementFormat, typename Code, int kBits, bool kRotated>
struct CodedCodec {
  using Format = ElementFormat;
  using Stored = typename Format::Stored;
  static constexpr PacketShape kShape = packet_shape_of(kBits);
  static_assert(kShape.elements() != 0, "kPacketShapes (format.h) has no codes of so many bits");
  static constexpr std::uint32_t kPairs = kShape.pairs, kTurns = kShape.turns;
  static constexpr std::uint64_t kPacketElements = kShape.elements();

  static constexpr bool serves(ReduceOp op) { return op == ReduceOp::Sum || op == ReduceOp::Avg; }

  using Packet = LaneData;
  using Elements = PacketElements<Stored, kPairs, kTurns>;
  static constexpr std::uint32_t kInVector = Elements::kInVector;
  using Half = typename Elements::Half;
  using Input = typename Elements::Halves;
  using Output = typename Elements::Halves;
  // Whether an input may be read before it is needed: whether there are registers for it.
  static constexpr bool kLoadsEarly = sizeof(Input) <= (kRotated ? 64 : 128);

  // What two ranks sent for one place: combined when it is written.
  template <ReduceOp kOp>
  struct PairOutput {
    Packet first, second;
  };

  using Codes = PacketCodes<Code, kPairs, kTurns, kInVector>;
  using Sealed = typename Codes::Sealed;
  using Opened = typename Codes::Opened;

  // A sum of decoded elements as it lies in an output.
  static __device__ __forceinline__ Half finish_half(HalfBlock half, const Divisor& divisor) {
    if constexpr (kRotated) rotate_back<kInVector>(half);
    divisor.divide(half);
    return narrowed<Format, Half>(half);
  }

  // Elements of `range`, packet by packet; blocks are counted from its first element.
  class Packets {
   public:
    __device__ __forceinline__ Packets(ElementRange range, bool vectors)
        : elements_(range, vectors) {}

    __device__ __forceinline__ Packet read(const void* send, std::uint64_t packet) const {
      return encode(load(send, packet));
    }
    // The two halves of read(), for who has something to do while the elements are on their way.
    __device__ __forceinline__ Input load(const void* send, std::uint64_t packet) const {
      return elements_.read(static_cast<const Stored*>(send), packet);
    }
    static __device__ __forceinline__ Packet encode(const Input& input) {
      Sealed sealed;
      encode_turns<0>(input, sealed);
      if constexpr (kTurns > 2) encode_turns<2>(input, sealed);
      return sealed.packet();
    }
    __device__ __forceinline__ void write(void* recv, std::uint64_t packet,
                                          const Output& output) const {
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn)
        elements_.write(static_cast<Stored*>(recv), packet, turn, output.of_turn[turn]);
    }
    template <ReduceOp kOp>
    __device__ __forceinline__ void write(void* recv, std::uint64_t packet,
                                          const PairOutput<kOp>& output) const {
      write_sum(recv, packet, output.first, output.second, divisor_of<kOp>(2));
    }
    // What two ranks sent for one place. Here and below it decodes block by block, which takes far
    // fewer registers than an Output. Of two: the divisor is 1 or 2.
    __device__ __forceinline__ void write_sum(void* recv, std::uint64_t packet,
                                              const Packet& of_first, const Packet& of_second,
                                              const Divisor& divisor) const {
      auto* const to = static_cast<Stored*>(recv);
      const Opened first(of_first), second(of_second);
      if constexpr (kBits == 4 && !kRotated && std::is_same_v<Format, Float16>) {
        const bool has_blocks = lane_of_thread() < 2 * kPairs;
        if (!has_blocks || are_exact_in_half(first, second)) {
#pragma unroll
          for (std::uint32_t turn = 0; turn < kTurns; ++turn)
            elements_.write(to, packet, turn,
                            sum_in_half<Half>(first, second, turn, divisor.inverse()));
          return;
        }
      }
      // What float16 elements decode to is so far from the ends of float32 that a power of two may
      // be put to the scales, instead of to each sum.
      constexpr bool kScalesFirst = std::is_same_v<Format, Float16>;
      const float factor =
          kScalesFirst ? divisor.inverse() * (kRotated ? 1.0F / kCodecBlock : 1.0F) : 1.0F;
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
        HalfBlock half;
        first.put(turn, half, factor);
        second.add_to(turn, half, factor);
        if constexpr (kScalesFirst) {
          if constexpr (kRotated) rotate<kInVector>(half);
          elements_.write(to, packet, turn, narrowed<Format, Half>(half));
        } else {
          elements_.write(to, packet, turn, finish_half(half, divisor));
        }
      }
    }
    // What an owner sent, or sends: a result.
    __device__ __forceinline__ void write_decoded(void* recv, std::uint64_t packet,
                                                  const Packet& result) const {
      const Opened opened(result);
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
        HalfBlock half;
        opened.put(turn, half);
        elements_.write(static_cast<Stored*>(recv), packet, turn, finish_half(half, Divisor(1)));
      }
    }

   private:
    template <std::uint32_t kFirst>
    static __device__ __forceinline__ void encode_turns(const Input& input, Sealed& sealed) {
      constexpr std::uint32_t kCount = kTurns - kFirst > 1 ? 2 : 1;
      using Raw =
          std::conditional_t<kRotated || sizeof(Stored) == 4, HalfBlock, HalfBlockOf16Bits<Format>>;
      Raw halves[kCount];
#pragma unroll
      for (std::uint32_t n = 0; n < kCount; ++n) {
        halves[n] = values_of<Format, Raw>(input.of_turn[kFirst + n]);
        if constexpr (kRotated) rotate<kInVector>(halves[n]);
      }
      sealed.template add<kFirst>(halves);
    }

    Elements elements_;
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
        HalfBlock& half = halves_[turn - kFirst];
#pragma unroll
        for (float& value : half.values) value = is_first ? -0.0F : value;  // -0 + x is x
        opened.add_to(turn, half);
      }
    }
    // Divided before it is encoded once more: whoever decodes it knows nothing of the ranks.
    __device__ __forceinline__ void seal(Sealed& sealed, const Divisor& divisor) {
#pragma unroll
      for (HalfBlock& half : halves_) divisor.divide(half);
      add_turns<kFirst>(sealed);
      if constexpr (kLast - kFirst > 2) add_turns<kFirst + 2>(sealed);
    }

   protected:
    template <std::uint32_t kTurn>
    __device__ __forceinline__ void add_turns(Sealed& sealed) const {
      constexpr std::uint32_t kCount = kLast - kTurn > 1 ? 2 : 1;
      HalfBlock halves[kCount];
#pragma unroll
      for (std::uint32_t n = 0; n < kCount; ++n) halves[n] = halves_[kTurn - kFirst + n];
      sealed.template add<kTurn>(halves);
    }

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
        output.of_turn[turn] = finish_half(this->halves_[turn], divisor_of<kOp>(ranks));
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
      opened.put(turn, half);
      output.of_turn[turn] = finish_half(half, Divisor(1));
    }
    return output;
  }
};

template <Codec kCodec>
using CodeOf = std::conditional_t<format_of(kCodec).is_fp8(), Fp8Code,
                                  IntegerCode<static_cast<int>(format_of(kCodec).bits)>>;
// Of any codec but None.
template <typename ElementFormat, Codec kCodec>
using CodedOf = CodedCodec<ElementFormat, CodeOf<kCodec>, static_cast<int>(format_of(kCodec).bits),
                           format_of(kCodec).rotated>;
static_assert(PacketCodec<CodedOf<Float16, Codec::Q6>>);

}  // namespace arcomm::device
