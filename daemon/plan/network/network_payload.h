// What elements take as they travel between nodes: partial results in the type that was chosen
// (NetworkChoice::partials), results in their own; with a codec both as encoded blocks
// (kernels/codec/README.md). Bytes and elements. Pure; any thread; allocates nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/plan/network/host_window.h"
#include "daemon/plan/network/network_question.h"
#include "kernels/codec/format.h"

namespace arcomm {

constexpr std::uint64_t partial_bytes(const NetworkQuestion& question, DType partials,
                                      std::uint64_t elements) {
  return question.codec == Codec::None ? elements * size_of(partials)
                                       : coded_bytes(question.codec, elements);
}

// Whether so many elements of a result travel encoded: not where a last block that is nearly empty
// takes more than its elements do.
constexpr bool result_is_coded(const NetworkQuestion& question, std::uint64_t elements) {
  return question.codec != Codec::None &&
         coded_bytes(question.codec, elements) <= elements * size_of(question.dtype);
}
constexpr std::uint64_t result_bytes(const NetworkQuestion& question, std::uint64_t elements) {
  return result_is_coded(question, elements) ? coded_bytes(question.codec, elements)
                                             : elements * size_of(question.dtype);
}

// What is encoded or decoded at once, at most: to code an element takes some ten times as long as
// to add it, and other tenants wait meanwhile.
inline constexpr std::uint64_t kMostCodedElements = 32'768;

// What nothing is cut smaller than where it travels: an element of a partial result, or a block.
struct WireUnit {
  std::uint64_t bytes = 0, elements = 0;
};
constexpr WireUnit wire_unit(const NetworkQuestion& question, DType partials) {
  if (question.codec == Codec::None) return {.bytes = size_of(partials), .elements = 1};
  return {.bytes = format_of(question.codec).block_bytes(), .elements = kCodecBlock};
}

// Elements in a ring's chunk of so many bytes: whole cache lines of results, or whole blocks.
constexpr std::uint64_t ring_chunk(const NetworkQuestion& question, DType partials,
                                   std::uint64_t chunk_bytes) {
  const WireUnit unit = wire_unit(question, partials);
  const std::uint64_t least =
      question.codec == Codec::None ? kCacheLineBytes / size_of(question.dtype) : unit.elements;
  return std::max(chunk_bytes / unit.bytes * unit.elements, least);
}
// What there is for a ring's chunks, which are of one slot each.
constexpr RingRoom ring_room_of_hosts(const NetworkQuestion& question, DType partials) {
  const std::uint64_t slot_bytes = slot_bytes_among(question.nodes);
  RingRoom room{.arch = RingArch::Hopper,
                .element_bytes = wire_unit(question, partials).bytes,
                .most_chunk_bytes = slot_bytes,
                .staging_bytes = kRingRooms * slot_bytes};
  if (question.codec == Codec::None) return room;
  room.most_chunk_bytes = std::min(slot_bytes, coded_bytes(question.codec, kMostCodedElements));
  room.staging_bytes = kRingRooms * room.most_chunk_bytes;
  return room;
}

// Of `elements` that go to one node: how many are in a chunk, whole blocks with a codec.
constexpr std::uint64_t payload_chunk(const NetworkQuestion& question, DType partials,
                                      std::uint64_t elements, std::uint32_t slot_bytes) {
  if (question.codec == Codec::None) return chunk_elements(elements, size_of(partials), slot_bytes);
  const std::uint32_t block_bytes = format_of(question.codec).block_bytes();
  const std::uint64_t blocks = (elements + kCodecBlock - 1) / kCodecBlock;
  return std::min(chunk_elements(blocks, block_bytes, slot_bytes) * kCodecBlock,
                  kMostCodedElements);
}

}  // namespace arcomm
