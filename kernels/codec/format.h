// What the compressed wire formats are, as values: README.md beside this tells the whole. Pure; any
// thread; needs no CUDA.
#pragma once

#include <cstdint>

#include "proto/types.h"

namespace arcomm {

inline constexpr std::uint32_t kCodecScaleBytes = 2;
inline constexpr std::uint16_t kNanScale = 0x7fc0;  // of a block that holds a NaN or an infinity
inline constexpr float kLeastCodedMagnitude = 0x1p-100F;  // a block below it is all zeros

struct CodecFormat {
  std::uint32_t bits = 0;    // of a code
  std::uint32_t levels = 0;  // L: codes are -L .. L-1; 0: codes are e4m3fn
  bool rotated = false;      // the block's Walsh-Hadamard transform is what is quantized
  // bfloat16 bits of the largest scale with which every code decodes to a finite number.
  std::uint16_t most_scale = 0;

  constexpr bool is_fp8() const { return levels == 0; }
  constexpr std::uint32_t code_bytes() const { return kCodecBlock * bits / 8; }
  constexpr std::uint32_t block_bytes() const { return code_bytes() + kCodecScaleBytes; }
};

// Of None: all zeros.
constexpr CodecFormat format_of(Codec codec) {
  switch (codec) {
    case Codec::None:
      return {};
    case Codec::Fp8:
      return {.bits = 8, .levels = 0, .rotated = false, .most_scale = 0x7b12};
    case Codec::Q8:
    case Codec::Q8Rotated:
      return {.bits = 8, .levels = 128, .rotated = codec == Codec::Q8Rotated, .most_scale = 0x7bff};
    case Codec::Q6:
    case Codec::Q6Rotated:
      return {.bits = 6, .levels = 32, .rotated = codec == Codec::Q6Rotated, .most_scale = 0x7cff};
    case Codec::Q4:
    case Codec::Q4Rotated:
      return {.bits = 4, .levels = 8, .rotated = codec == Codec::Q4Rotated, .most_scale = 0x7dff};
  }
  return {};
}
// Elements in a GPU's packet of eight lines (coded.cuh), whole blocks.
constexpr std::uint32_t packet_elements_of(Codec codec) {
  switch (format_of(codec).bits) {
    case 8:
      return 896;
    case 6:
      return 1152;
    case 4:
      return 1664;
    default:
      return 0;
  }
}
// The codec of the same codes whose blocks are not transformed: how a transform itself is encoded.
constexpr Codec unrotated(Codec codec) {
  switch (codec) {
    case Codec::Q8Rotated:
      return Codec::Q8;
    case Codec::Q6Rotated:
      return Codec::Q6;
    case Codec::Q4Rotated:
      return Codec::Q4;
    default:
      return codec;
  }
}
inline constexpr std::uint32_t kMostBlockBytes = format_of(Codec::Q8).block_bytes();
static_assert(kMostBlockBytes == 34 && format_of(Codec::Q6).block_bytes() == 26 &&
              format_of(Codec::Q4).block_bytes() == 18);

}  // namespace arcomm
