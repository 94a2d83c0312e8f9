// CLOCK_MONOTONIC in nanoseconds: the one clock of the data path, the same in every process of the
// node.
#pragma once

#include <cstdint>
#include <ctime>

namespace arcomm {

inline std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace arcomm
