// What a wire format is: what a line carries, and nothing of how lines move (lines/) or of who
// sends what to whom (all_reduce/, in_stream/). A format is a type with static members; the
// algorithms on lines take it as their template parameter `Codec` and require LineCodec (LL16) or
// PacketCodec (LL128) of it. plain.cuh is the one to read beside this; table.cuh lists the formats.
//
// A format encodes when an input is read, decodes when it combines, and combines in float32 for
// 16-bit types, in rank order. Every rank must end with the same bits, so:
//   - a rank's own part is encoded too, and combined as the peers' parts are;
//   - in two hops the shard's owner writes what the others will decode: decode(as_packet());
//   - a part of a line that has no element behind it is encoded the same way on all ranks.
// A line that arrives is a peer's word: a format must decode any bits without reading or writing
// outside of what it was given.
#pragma once

#include <concepts>
#include <cstdint>

#include "kernels/lines/ll128.cuh"
#include "kernels/partition.h"
#include "proto/types.h"

namespace arcomm::device {

// What both kinds have: Format, how an element of an input or output lies in memory (one of
// device/element.cuh) and its Stored type; and whether the format serves an operation on such
// elements. Where it does not, no kernel is compiled.
template <typename C>
concept WireFormat = std::same_as<typename C::Stored, typename C::Format::Stored> && requires {
  { C::serves(ReduceOp::Sum) } -> std::same_as<bool>;
};

// Carried by LL16: 8 bytes a line, kLineElements elements of them. `first` is the line's first
// element, of `count` in the operation, and lies below it; a last line may have fewer elements.
//   read_line, read_elements     encode the line of an input. The second one goes element by
//                                element: less code, for where a thread reads several lines
//   LineResult<op>               combine_next(data, is_first) takes all ranks' lines of one place,
//                                in rank order; as_output(ranks) is what a rank writes
//   write_line, write_elements   store that into an output
template <typename C>
concept LineCodec = WireFormat<C> &&
    std::convertible_to<decltype(C::kLineElements), std::uint32_t> &&
    requires(const void* send, void* recv, std::uint64_t first, std::uint64_t count, uint2 data,
             typename C::template LineResult<ReduceOp::Sum> result,
             const typename C::template LineResult<ReduceOp::Sum> combined, std::uint32_t ranks) {
  { C::read_line(send, first, count) } -> std::same_as<uint2>;
  { C::read_elements(send, first, count) } -> std::same_as<uint2>;
  { C::write_line(recv, first, count, data) } -> std::same_as<void>;
  { C::write_elements(recv, first, count, data) } -> std::same_as<void>;
  { result.combine_next(data, true) } -> std::same_as<void>;
  { combined.as_output(ranks) } -> std::same_as<uint2>;
};

// Carried by LL128: a packet of eight lines, which all lanes of a warp call for together, each with
// its part of the packet's 992 bytes: LaneData, none in the last lane (lines/ll128_layout.h).
// kPacketElements elements each.
//   Packet            what a lane sends and receives: LaneData, as lines move nothing else
//   Output            what a lane writes into an output: the format's own
//   Packets           the elements of a range, packet by packet: read(send, packet) encodes,
//                     write(recv, packet, output) stores
//   PacketResult<op>  combine_next(packet, is_first) takes all ranks' packets of one place, in rank
//                     order; as_output(ranks) is what a rank writes after one hop, as_packet(ranks)
//                     what a shard's owner sends on
//   PairResult<op>    the same of two ranks: its as_output may be of a type of its own, which write
//                     takes, too, and combines only there
//   decode(packet)    an owner's result, as every rank writes it
template <typename C>
concept PacketCodec = WireFormat<C> && std::same_as<typename C::Packet, LaneData> &&
    std::convertible_to<decltype(C::kPacketElements), std::uint64_t> &&
    std::constructible_from<typename C::Packets, ElementRange, bool> &&
    requires(const void* send, void* recv, std::uint64_t number, const typename C::Packets packets,
             const typename C::Packet packet, const typename C::Output output,
             typename C::template PacketResult<ReduceOp::Sum> result,
             const typename C::template PacketResult<ReduceOp::Sum> combined,
             typename C::template PairResult<ReduceOp::Sum> pair, std::uint32_t ranks) {
  { pair.combine_next(packet, true) } -> std::same_as<void>;
  { packets.write(recv, number, pair.as_output(ranks)) } -> std::same_as<void>;
  { packets.read(send, number) } -> std::same_as<typename C::Packet>;
  { packets.write(recv, number, output) } -> std::same_as<void>;
  { result.combine_next(packet, true) } -> std::same_as<void>;
  { combined.as_output(ranks) } -> std::same_as<typename C::Output>;
  { combined.as_packet(ranks) } -> std::same_as<typename C::Packet>;
  { C::decode(packet) } -> std::same_as<typename C::Output>;
};

// How many packets carry so many elements.
template <PacketCodec Codec>
constexpr std::uint32_t packets_of(std::uint64_t elements) {
  return static_cast<std::uint32_t>((elements + Codec::kPacketElements - 1) /
                                    Codec::kPacketElements);
}

}  // namespace arcomm::device
