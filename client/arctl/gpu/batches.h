// How much is timed of a size, and which part of its result is looked at. Pure; any thread.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace arcomm::arctl {

inline constexpr std::uint32_t kChain = 10;  // operations in a graph
inline constexpr std::uint32_t kGpuWarmup = 20;

// Larger results are looked at in windows, one in each part of the result: reading all of it back
// would take longer than everything else.
inline constexpr std::uint64_t kWholeBytes = 64 << 20;
inline constexpr std::uint64_t kWindows = 64, kWindowBytes = 64 << 10;

struct Batches {
  std::uint32_t number = 0;
  std::uint32_t operations = 0;  // in each, whole chains
};
// Enough that the 99th percentile says something, and few seconds in all.
Batches batches_of(std::uint64_t bytes);

// `operations`, rounded up to whole graphs of `chain`.
std::uint32_t whole_chains(std::uint32_t operations, std::uint32_t chain);

// Elements of a result: from `first` on.
struct Window {
  std::uint64_t first = 0, count = 0;
};
// The whole result up to kWholeBytes; above it the beginning and the end always, and a random place
// in each of the parts between. Ascending, without overlap. element: bytes of one.
std::vector<Window> windows_of(std::uint64_t count, std::uint64_t element, std::mt19937_64& random);

}  // namespace arcomm::arctl
