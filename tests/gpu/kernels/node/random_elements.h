// Random elements for tests that compare bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "proto/types.h"

namespace arcomm::gpu {

// Random bits, and among them what rounds, overflows or is no number. Whole words of 8 bytes.
inline void fill(std::vector<std::byte>& bytes, DType dtype, std::mt19937_64& random) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(&bytes[i], &word, 8);
  }
  if (dtype != DType::Float32 && dtype != DType::Float16 && dtype != DType::BFloat16) return;
  // Mostly of like size, so that sums neither vanish nor overflow; every 16th word stays as it is.
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    if (i % 64 == 0) continue;
    std::uint32_t word;
    std::memcpy(&word, &bytes[i], 4);
    if (dtype == DType::Float32)
      word = (word & 0x807fffffU) | (0x3f000000U + ((word >> 24 & 7U) << 23));
    if (dtype == DType::BFloat16) word = (word & 0x807f807fU) | 0x3f003f80U;
    if (dtype == DType::Float16) word = (word & 0x83ff83ffU) | 0x38003c00U;
    std::memcpy(&bytes[i], &word, 4);
  }
}

}  // namespace arcomm::gpu
