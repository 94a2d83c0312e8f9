// Words and sums of fake GPUs. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace arcomm::test {

inline std::uint64_t load_word(const std::uint64_t& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
inline void store_word(std::uint64_t& word, std::uint64_t value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

// out[i] of every rank becomes the sum of in[i] of all. By indices, as iterators take most of the
// time where tests are not optimised.
inline void sum_floats(const std::vector<const float*>& in, const std::vector<float*>& out,
                       std::uint64_t count) {
  const float* const* const from = in.data();
  float* const* const to = out.data();
  const std::size_t ranks_in = in.size(), ranks_out = out.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (std::size_t r = 0; r < ranks_in; ++r) sum += from[r][i];
    for (std::size_t r = 0; r < ranks_out; ++r) to[r][i] = sum;
  }
}

}  // namespace arcomm::test
