// Starts made by stream memory operations (memory_post.h), in CUDA's terms. Any thread.
#pragma once

#include "client/cuda/memory_post.h"
#include "transport/device/cuda_driver.h"

namespace arcomm::client {

// Whether the GPU can write the 64-bit words that a start needs.
bool can_post_by_memory(const CudaDriver& api, CUdevice device);

// The stream's context is current. Nothing of it is captured.
CUresult post_by_memory(const CudaDriver& api, const MemoryPost& start, CUstream stream);

}  // namespace arcomm::client
