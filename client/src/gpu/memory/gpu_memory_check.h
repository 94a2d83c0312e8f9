// What CUDA says of the memory that a caller names: whether it is this rank's GPU's, and to its
// end. Any thread.
#pragma once

#include <cstdint>

#include "client/cuda/gpu.h"
#include "proto/status.h"

namespace arcomm::client {

// InvalidArgument, naming both, for memory of another GPU.
Status check_gpu(const Gpu& gpu, const GpuRange& range, const void* address);

// The memory of `gpu` that [address, +bytes) lies in: one allocation, or mappings one behind the
// other. InvalidArgument where there is none, OutOfBounds where it ends before.
Result<GpuRange> memory_around(Gpu& gpu, const void* address, std::uint64_t bytes);

}  // namespace arcomm::client
