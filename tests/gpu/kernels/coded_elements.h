// Elements as codecs meet them: blocks of what data are like, and of what codecs must not trip
// over. Any one thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/host/element.h"
#include "proto/types.h"

namespace arcomm::gpu {

using Bytes = std::vector<std::byte>;

inline float read(DType dtype, const std::byte* from) {
  if (dtype == DType::Float32) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, from, sizeof half);
  return dtype == DType::Float16 ? float_from_float16(half) : float_from_bfloat16(half);
}
inline void write(DType dtype, float value, std::byte* to) {
  if (dtype == DType::Float32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t half =
      dtype == DType::Float16 ? float16_from_float(value) : bfloat16_from_float(value);
  std::memcpy(to, &half, sizeof half);
}

class Elements {
 public:
  explicit Elements(unsigned seed) : random_(seed) {}

  Bytes make(DType dtype, std::uint64_t count) {
    Bytes bytes(count * size_of(dtype));
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i % kCodecBlock == 0) {
        kind_ = static_cast<std::uint32_t>(random_() % 20);
        exponent_ = static_cast<int>(random_() % 280) - 150;
      }
      write(dtype, next(dtype), bytes.data() + i * size_of(dtype));
    }
    return bytes;
  }

 private:
  float next(DType dtype) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float value = normal_(random_);
    const bool is_rare = random_() % 32 == 0;
    switch (kind_) {
      case 0:
        return random_() % 2 == 0 ? 0.0F : -0.0F;
      case 1:
        return is_rare ? std::numeric_limits<float>::quiet_NaN() : value;
      case 2:
        return is_rare ? -kInf : value;
      case 3:
        return is_rare ? 3e38F * (value < 0 ? -1.0F : 1.0F) : value * 1e37F;
      case 4:
        return value * 1e-40F;
      case 5:
        return value * 0x1p-100F;
      case 6:
        return is_rare ? 65504.0F : value * 100;
      case 7:  // ties
        return static_cast<float>(static_cast<int>(random_() % 513) - 256) * 0.5F;
      case 8:  // equal magnitudes of both signs
        return random_() % 2 == 0 ? 1.5F : -1.5F;
      case 9:
        return is_rare ? value * 1000 : value;
      case 10:  // every exponent that the type has, denormals and what is beyond the largest
        return std::ldexp(value, dtype == DType::Float16 ? exponent_ / 6 : exponent_);
      case 11:  // zeros but for a few
        return is_rare ? value : 0.0F * value;
      case 12:  // float16's last denormals
        return static_cast<float>(static_cast<int>(random_() % 9) - 4) * 0x1p-24F;
      case 13: {  // every code of a scale that is no power of two, and the ties between codes
        const float steps = static_cast<float>(static_cast<int>(random_() % 514) - 257) * 0.5F;
        return std::ldexp(steps * 1.328125F, exponent_ / 20);
      }
      case 14:  // the largest magnitude in both signs, seldom, among smaller ones
        return is_rare ? (value < 0 ? -8.0F : 8.0F) : std::fmod(value, 8.0F);
      case 15:  // about the largest scales with which float16 sums are made in float16
        return std::ldexp(value, is_rare ? 14 : 13);
      default:
        return value;
    }
  }

  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::uint32_t kind_ = 0;  // of the block
  int exponent_ = 0;
};

}  // namespace arcomm::gpu
