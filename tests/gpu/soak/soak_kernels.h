// What the soak's streams do between AllReduces, without the host: look whether memory is as it
// must be, and hold a stream up.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace arcomm::gpu {

// Of a replay that is looked at: what says which memory it was and what went in.
struct Looked {
  std::uint64_t replay = 0;
  std::uint32_t chain = 0, pattern = 0;
};

struct WrongWord {
  Looked at;
  std::uint64_t word = 0;  // counted from where the comparison began
  std::uint32_t got = 0, expected = 0;
};

// In memory of the GPU, zero at first.
struct Findings {
  static constexpr std::uint32_t kKept = 16;
  unsigned long long wrong = 0;  // words, of all comparisons
  WrongWord kept[kKept];         // those that came first, in no order
};

cudaError_t compare(const std::uint32_t* got, const std::uint32_t* expected, std::uint64_t words,
                    const Looked& at, Findings* findings, cudaStream_t stream);
cudaError_t spin(std::uint32_t microseconds, cudaStream_t stream);

}  // namespace arcomm::gpu
