// Somebody else's kernel that leaves no room on a GPU, until it is told to end.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace arcomm::gpu {

// On the current GPU, for ten seconds at most. `end`: in pinned memory; not 0: it ends.
cudaError_t fill_gpu(const std::uint32_t* end, cudaStream_t stream);

}  // namespace arcomm::gpu
