// The wire format "plain": lines carry the elements as they lie in memory.
#pragma once

#include <cstdint>

#include "kernels/codec/concept.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/lines/ll128.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

template <typename ElementFormat>
struct PlainCodec {
  using Format = ElementFormat;
  using Stored = typename Format::Stored;

  static constexpr bool serves(ReduceOp) { return true; }

  // ---- what the 8 bytes of an LL16 line carry ----

  static constexpr std::uint32_t kLineElements = Pack<Format, 8>::kCount;

  // Past L1, so that a kernel may read before it knows its epoch.
  static __device__ __forceinline__ uint2 read_line(const void* send, std::uint64_t first,
                                                    std::uint64_t count) {
    const Stored* from = static_cast<const Stored*>(send) + first;
    if (first + kLineElements <= count && reinterpret_cast<std::uintptr_t>(from) % 8 == 0)
      return load_past_l1(reinterpret_cast<const uint2*>(from));
    return read_elements(send, first, count);
  }
  static __device__ __forceinline__ uint2 read_elements(const void* send, std::uint64_t first,
                                                        std::uint64_t count) {
    const Stored* from = static_cast<const Stored*>(send) + first;
    Line line{};
#pragma unroll
    for (std::uint32_t i = 0; i < kLineElements; ++i) {
      if (first + i < count) line.elements[i] = load_past_l1(from + i);
    }
    return line.whole;
  }
  static __device__ __forceinline__ void write_line(void* recv, std::uint64_t first,
                                                    std::uint64_t count, uint2 whole) {
    Stored* to = static_cast<Stored*>(recv) + first;
    if (first + kLineElements <= count && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
      *reinterpret_cast<uint2*>(to) = whole;
    } else {
      write_elements(recv, first, count, whole);
    }
  }
  static __device__ __forceinline__ void write_elements(void* recv, std::uint64_t first,
                                                        std::uint64_t count, uint2 whole) {
    Stored* to = static_cast<Stored*>(recv) + first;
    Line line;
    line.whole = whole;
#pragma unroll
    for (std::uint32_t i = 0; i < kLineElements; ++i) {
      if (first + i < count) to[i] = line.elements[i];
    }
  }

  // All ranks' lines of one place, one after the other in rank order.
  template <ReduceOp kOp>
  class LineResult {
   public:
    __device__ __forceinline__ void combine_next(uint2 data, bool is_first) {
      Line next;
      next.whole = data;
      so_far_.template combine_next<kOp>(next.elements, is_first);
    }
    __device__ __forceinline__ uint2 as_output(std::uint32_t ranks) const {
      Line out;
      so_far_.template store_to<kOp>(out.elements, ranks);
      return out.whole;
    }

   private:
    Pack<Format, 8> so_far_;
  };

  // ---- what an LL128 packet carries ----

  static constexpr std::uint64_t kPacketElements = kLl128PacketData / sizeof(Stored);

  // What a lane sends of a packet, and what it writes of a result.
  using Packet = LaneData;
  using Output = LaneData;

  // Elements of `range`, packet by packet.
  class Packets {
   public:
    // `vectors`: the buffers that it is used on lie on multiples of 16 bytes, and so does the
    // range's start.
    __device__ __forceinline__ Packets(ElementRange range, bool vectors)
        : range_(range), vectors_(vectors) {}

    // Past L1, so that a kernel may read before it knows its epoch.
    __device__ __forceinline__ Packet read(const void* send, std::uint64_t packet) const {
      const std::uint32_t lane = lane_of_thread();
      const auto* from = static_cast<const Stored*>(send);
      if (!ll128_has_data(lane)) return {};
      return {read_vector(from, element(packet, ll128_first_vector(lane))),
              read_vector(from, element(packet, ll128_second_vector(lane)))};
    }
    __device__ __forceinline__ void write(void* recv, std::uint64_t packet,
                                          const Output& data) const {
      const std::uint32_t lane = lane_of_thread();
      auto* to = static_cast<Stored*>(recv);
      if (!ll128_has_data(lane)) return;
      write_vector(to, element(packet, ll128_first_vector(lane)), data.first);
      write_vector(to, element(packet, ll128_second_vector(lane)), data.second);
    }

   private:
    __device__ __forceinline__ std::uint64_t element(std::uint64_t packet,
                                                     std::uint32_t vector) const {
      return range_.first + (packet * (kLl128PacketData / 16) + vector) * kVectorElements;
    }
    __device__ __forceinline__ uint4 read_vector(const Stored* from, std::uint64_t at) const {
      if (vectors_ && at + kVectorElements <= range_.last)
        return load_past_l1(reinterpret_cast<const uint4*>(from + at));
      if (at >= range_.last) return {};
      return read_elements(from, at, range_.last);
    }
    __device__ __forceinline__ void write_vector(Stored* to, std::uint64_t at,
                                                 const uint4& whole) const {
      if (vectors_ && at + kVectorElements <= range_.last) {
        *reinterpret_cast<uint4*>(to + at) = whole;
      } else if (at < range_.last) {
        write_elements(to, at, range_.last, whole);
      }
    }
    // Out of line: most vectors are whole, or lie behind the last element.
    static __device__ __noinline__ uint4 read_elements(const Stored* from, std::uint64_t at,
                                                       std::uint64_t last) {
      Vector vector{};
#pragma unroll
      for (std::uint32_t i = 0; i < kVectorElements; ++i) {
        if (at + i < last) vector.elements[i] = load_past_l1(from + at + i);
      }
      return vector.whole;
    }
    static __device__ __noinline__ void write_elements(Stored* to, std::uint64_t at,
                                                       std::uint64_t last, uint4 whole) {
      Vector vector;
      vector.whole = whole;
#pragma unroll
      for (std::uint32_t i = 0; i < kVectorElements; ++i) {
        if (at + i < last) to[at + i] = vector.elements[i];
      }
    }

    ElementRange range_;
    bool vectors_;
  };

  // A lane's part of all ranks' packets of one place, one after the other in rank order.
  template <ReduceOp kOp>
  class PacketResult {
   public:
    __device__ __forceinline__ void combine_next(const Packet& data, bool is_first) {
      combine(first_, data.first, is_first);
      combine(second_, data.second, is_first);
    }
    __device__ __forceinline__ Packet as_packet(std::uint32_t ranks) const {
      Vector first, second;
      first_.template store_to<kOp>(first.elements, ranks);
      second_.template store_to<kOp>(second.elements, ranks);
      return {first.whole, second.whole};
    }
    __device__ __forceinline__ Output as_output(std::uint32_t ranks) const {
      return as_packet(ranks);
    }

   private:
    static __device__ __forceinline__ void combine(Pack<Format, 16>& so_far, const uint4& whole,
                                                   bool is_first) {
      Vector next;
      next.whole = whole;
      so_far.template combine_next<kOp>(next.elements, is_first);
    }

    Pack<Format, 16> first_, second_;
  };

  template <ReduceOp kOp>
  using PairResult = PacketResult<kOp>;

  static __device__ __forceinline__ Output decode(const Packet& packet) {
    return packet;
  }

 private:
  static constexpr std::uint32_t kVectorElements = Pack<Format, 16>::kCount;
  using Line = Moved<Stored, uint2>;
  using Vector = Moved<Stored, uint4>;
};
static_assert(LineCodec<PlainCodec<Float16>> && PacketCodec<PlainCodec<Float16>>);
static_assert(LineCodec<PlainCodec<BFloat16>> && PacketCodec<PlainCodec<BFloat16>>);
static_assert(LineCodec<PlainCodec<Plain<float>>> && PacketCodec<PlainCodec<Plain<float>>>);
static_assert(LineCodec<PlainCodec<Plain<double>>> && PacketCodec<PlainCodec<Plain<double>>>);

// PlainCodec::read_line for a caller that knows only how long elements are. Past L1, too.
__device__ __forceinline__ uint2 read_plain_line(const unsigned char* send, std::uint32_t line,
                                                 std::uint64_t bytes, std::uint32_t size) {
  const std::uint64_t first = std::uint64_t{line} * 8;
  std::uint64_t data = 0;
  for (std::uint32_t at = 0; at < 8 && first + at < bytes; at += size) {
    std::uint64_t element = 0;
    switch (size) {
      case 1:
        element = __ldcg(send + first + at);
        break;
      case 2:
        element = __ldcg(reinterpret_cast<const unsigned short*>(send + first + at));
        break;
      case 4:
        element = __ldcg(reinterpret_cast<const unsigned int*>(send + first + at));
        break;
      default:
        element = __ldcg(reinterpret_cast<const unsigned long long*>(send + first + at));
    }
    data |= element << (at * 8);
  }
  return {static_cast<std::uint32_t>(data), static_cast<std::uint32_t>(data >> 32)};
}

}  // namespace arcomm::device
