// A kernel that raises a word in host memory and waits until the CPU has answered in another one:
// what every hand-over between a kernel and the proxy costs at least.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace arcomm::gpu {

// Two words on lines of their own, and how long it took: host memory that the GPU reaches.
struct EchoWords {
  alignas(128) std::uint64_t asked;
  alignas(128) std::uint64_t answered;
  alignas(128) std::uint64_t ns;  // of all times together, 0 while it runs
};

// Asks for 1, 2, ... `times`. Ends early after two seconds, with ns = ~0.
cudaError_t ask_for_echoes(EchoWords* words, std::uint64_t times, cudaStream_t stream);

}  // namespace arcomm::gpu
