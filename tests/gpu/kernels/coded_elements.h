// Elements as codecs meet them: blocks of what data are like, and of what codecs must not trip
// over. Any one thread.
#pragma once

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
      if (i % kCodecBlock == 0) kind_ = random_() % 16;
      write(dtype, next(), bytes.data() + i * size_of(dtype));
    }
    return bytes;
  }

 private:
  float next() {
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
      default:
        return value;
    }
  }

  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::uint32_t kind_ = 0;
};

}  // namespace arcomm::gpu
