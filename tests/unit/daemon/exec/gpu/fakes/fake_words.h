// Words and sums of fake GPUs. Any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace arcomm::test {

inline std::uint64_t load_word(const std::uint64_t& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
inline void store_word(std::uint64_t& word, std::uint64_t value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

// out[i] of every rank becomes the sum of in[i] of all.
inline void sum_floats(const std::vector<const float*>& in, const std::vector<float*>& out,
                       std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (const float* one : in) sum += one[i];
    for (float* one : out) one[i] = sum;
  }
}

}  // namespace arcomm::test
