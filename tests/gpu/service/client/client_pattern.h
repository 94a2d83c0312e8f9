// What the ranks of client_rank send, and what must come out: by kernels/host/reference.h, bit for
// bit. Of the process's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace arcomm::gpu {

inline constexpr std::uint64_t kPeriod = 1048573;  // elements; prime: no tile sees it repeat

// Repeated over and over: one period of each.
struct Pattern {
  std::vector<std::byte> mine, expected;
};
Pattern make_pattern(int number);

}  // namespace arcomm::gpu
