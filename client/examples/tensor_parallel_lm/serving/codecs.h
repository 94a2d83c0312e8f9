// The codecs by the names that people type. Plain values.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "client/include/arclient.h"

namespace lm {

struct NamedCodec {
  std::string_view name;
  arcCodec_t codec;
};
inline constexpr std::array<NamedCodec, 8> kCodecs = {{{"none", arcCodecNone},
                                                       {"fp8", arcCodecFp8},
                                                       {"q8", arcCodecQ8},
                                                       {"q6", arcCodecQ6},
                                                       {"q4", arcCodecQ4},
                                                       {"q8_rotated", arcCodecQ8Rotated},
                                                       {"q6_rotated", arcCodecQ6Rotated},
                                                       {"q4_rotated", arcCodecQ4Rotated}}};
constexpr std::optional<arcCodec_t> codec_named(std::string_view name) {
  for (const NamedCodec& one : kCodecs) {
    if (one.name == name) return one.codec;
  }
  return std::nullopt;
}
constexpr std::string_view name_of(arcCodec_t codec) {
  return kCodecs[static_cast<std::size_t>(codec)].name;
}

}  // namespace lm
