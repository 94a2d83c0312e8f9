// A trial: what the tuner has a kernel sum before it believes its time. Inputs that differ by seed,
// rank and place; outputs poisoned with what is no sum; and a look at what came of them. Sums are
// exact in any order, so each element is right or wrong. Any thread; nothing here allocates or
// waits.
#pragma once

#include <cstdint>

#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

inline constexpr DType kTrialType = DType::BFloat16;

// One rank's buffers, as its GPU sees them.
struct TrialCall {
  void* send = nullptr;
  void* recv = nullptr;
  // Of the host, also the GPU's: not 0 once an element was found wrong; then one more than its
  // index.
  std::uint64_t* wrong = nullptr;
  std::uint64_t count = 0;  // elements of kTrialType
  std::uint32_t seed = 0, rank = 0, ranks = 0;
};

// -31 .. 31: eight of them add up to less than the 256 up to which bfloat16 has every integer.
constexpr std::int32_t trial_value(std::uint32_t seed, std::uint32_t rank, std::uint64_t index) {
  std::uint64_t bits = index * 0x9e37'79b9'7f4a'7c15ULL + (std::uint64_t{seed} << 32 | rank);
  bits = (bits ^ bits >> 31) * 0xbf58'476d'1ce4'e5b9ULL;
  return static_cast<std::int32_t>((bits >> 32) % 63) - 31;
}
constexpr std::int32_t trial_sum(std::uint32_t seed, std::uint32_t ranks, std::uint64_t index) {
  std::int32_t sum = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) sum += trial_value(seed, rank, index);
  return sum;
}
static_assert(31 * kMaxGpuRanks < 256);

// `stream`: a cudaStream_t of the rank's GPU, which is current. fill: the input, and the poison.
// check: behind the operation, whether the input is as it was and the output is the sum.
Status launch_trial_fill(const TrialCall& call, void* stream);
Status launch_trial_check(const TrialCall& call, void* stream);
// Into the current device, as load_all_reduce_kernels().
Status load_trial_kernels();

}  // namespace arcomm
