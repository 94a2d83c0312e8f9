// Combines what several ranks have for one stretch of the output, all of it in the memory of one
// GPU: what SMs do while copy engines carry the parts of the ranks. The results are launch.h's, bit
// for bit. Any thread; nothing here allocates or waits.
#pragma once

#include <cstdint>

#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

// Device pointers, aligned to the element. `out` may be one of the parts, and overlaps no other.
struct CombineCall {
  const void* parts[kMaxGpuRanks] = {};  // by rank
  void* out = nullptr;
  std::uint64_t count = 0;  // elements, more than 0
  std::uint32_t ranks = 0;  // 2 .. kMaxGpuRanks
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  std::uint32_t most_blocks = ~std::uint32_t{0};  // 1 and more; 64 are enough for the memory
};

// `stream`: a cudaStream_t of that GPU, which is current. load_all_reduce_kernels() loads it.
Status launch_combine(const CombineCall& call, void* stream);

}  // namespace arcomm
