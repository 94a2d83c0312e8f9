// Whether 128 bytes that a warp stores with one instruction reach another GPU's memory whole. The
// LL128 algorithms need that, and no specification promises it, so it is tried at start-up for each
// ordered pair of GPUs, over NVLink alone. A pair that fails runs what algorithm_among() names.
//
// Blocks its thread for some milliseconds, `timeout` at most, and makes and frees pinned memory, so
// it is called only while nothing waits on either GPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "proto/status.h"

namespace arcomm {

inline constexpr std::uint64_t kLl128TestBytes = 128ull * 1024;
// Every line of 64 packets changes 16,384 times, and the reader sees some of that. With fewer
// changes than this it has not looked while lines changed, and nothing is shown.
inline constexpr std::uint64_t kFewestLl128Changes = 10'000;

struct Ll128Verdict {
  // Lines that were read with another flag than before: of the writer of which fewest were.
  std::uint64_t changes = ~std::uint64_t{0};
  std::uint64_t torn = 0;  // lines that were read with data older than their flag, of all writers

  bool lines_are_whole() const { return torn == 0 && changes >= kFewestLl128Changes; }
};

// All writers store at a time, each as fast as it can, so that their lines meet where they enter
// the reader. writers, reader: ordinals. `memory`: kLl128TestBytes for each writer of the reader's
// GPU, on a multiple of 128 bytes, mapped on all these GPUs; its contents are lost.
Result<Ll128Verdict> test_ll128_lines(std::span<const int> writers, int reader, void* memory,
                                      std::chrono::nanoseconds timeout);

}  // namespace arcomm
