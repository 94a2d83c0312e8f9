// Blocks of 32 floats that try a codec: made-up data of several kinds, and those in which something
// is special.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/codec/format.h"

namespace arcomm {

using Block = std::array<float, kCodecBlock>;

// All of them finite.
inline std::vector<Block> adversarial_blocks() {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  std::vector<Block> blocks;
  for (const float value : {0.0F, -0.0F, 1.0F, -1.0F, 65504.0F, 0x1.fffffep-101F, 0x1p-100F, kLeast,
                            0x1p-126F, kMost, -kMost, kMost / 32, 0x1.01p5F, 0x1.03p5F, 3.14159F}) {
    Block constant{}, one{}, alternating{}, falling{}, opposite{};
    constant.fill(value);
    one[17] = value;
    for (std::uint32_t i = 0; i < kCodecBlock; ++i) {
      alternating[i] = i % 2 == 0 ? value : -value;
      falling[i] = std::ldexp(value, -static_cast<int>(i)) * (i % 3 == 0 ? -1.0F : 1.0F);
      opposite[i] = -value * (1 - static_cast<float>(i) * 0x1p-10F);
    }
    opposite[31] = value;
    blocks.insert(blocks.end(), {constant, one, alternating, falling, opposite});
  }
  return blocks;
}

// Of any finite magnitudes, or of a few powers of two, or close to halves of steps.
inline Block random_block(std::mt19937_64& random) {
  Block block{};
  const auto kind = random() % 4;
  const int power = static_cast<int>(random() % 200) - 100;
  for (float& value : block) {
    const auto bits = static_cast<std::uint32_t>(random());
    const float unit = static_cast<float>(bits >> 8) * 0x1p-24F - 0.5F;
    switch (kind) {
      case 0:
        value = std::bit_cast<float>(bits);
        if (!std::isfinite(value)) value = 0;
        break;
      case 1:
        value = std::ldexp(unit, power + static_cast<int>(bits % 8));
        break;
      case 2:
        value = std::ldexp(static_cast<float>(static_cast<int>(bits % 513) - 256), power);
        break;
      default:
        value = std::ldexp(unit, power);
    }
  }
  return block;
}

}  // namespace arcomm
