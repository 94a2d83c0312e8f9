// What the compressed wire formats are, as values, beside what their rows say (proto/codec.h):
// README.md beside this tells the whole. Pure; any thread; needs no CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/codec.h"

namespace arcomm {

inline constexpr std::uint16_t kNanScale = 0x7fc0;  // of a block that holds a NaN or an infinity
inline constexpr float kLeastCodedMagnitude = 0x1p-100F;  // a block below it is all zeros

// What a GPU's packet of eight lines (coded.cuh) has room for, of codes of so many bits: pairs of
// lanes with blocks, and how many blocks each pair has.
struct PacketShape {
  std::uint32_t bits = 0, pairs = 0, turns = 0;

  constexpr std::uint32_t elements() const { return pairs * turns * kCodecBlock; }
};
inline constexpr PacketShape kPacketShapes[] = {{4, 13, 4}, {6, 12, 3}, {8, 14, 2}};
// Empty where no packet is made of such codes.
constexpr PacketShape packet_shape_of(std::uint32_t bits) {
  for (const PacketShape& shape : kPacketShapes) {
    if (shape.bits == bits) return shape;
  }
  return {};
}
// The codec of the same codes whose blocks are not transformed: how a transform itself is encoded.
constexpr Codec unrotated(Codec codec) {
  const CodecFormat format = format_of(codec);
  if (!format.rotated) return codec;
  for (const Codec other : kRealCodecs) {
    const CodecFormat plain = format_of(other);
    if (!plain.rotated && plain.bits == format.bits && plain.levels == format.levels) return other;
  }
  return codec;
}
inline constexpr std::uint32_t kMostBlockBytes = [] {
  std::uint32_t most = 0;
  for (const Codec codec : kRealCodecs) most = std::max(most, format_of(codec).block_bytes());
  return most;
}();
static_assert(kMostBlockBytes == 34);

// What so many elements take in memory, the last block a whole one. Precondition: a real codec.
constexpr std::uint64_t coded_bytes(Codec codec, std::uint64_t elements) {
  return (elements + kCodecBlock - 1) / kCodecBlock * format_of(codec).block_bytes();
}

}  // namespace arcomm
