// Kernels of clients whose faults are tested: one that breaks its context for good, and one that
// needs every SM of the GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace arcomm::gpu {

// Writes to an address that is nobody's: everything after it in this process fails.
cudaError_t write_to_nobodys_memory(cudaStream_t stream);

// Adds one to *count for each block, of which there are two to an SM, each with all the
// threads that a block may have.
cudaError_t fill_processors(int sms, unsigned* count, cudaStream_t stream);
inline constexpr int kBlocksPerProcessor = 2;

// As many blocks with as many threads, all of which stay for so long: no other kernel finds room.
// Counts them in *started, pinned memory.
cudaError_t hold_processors(int sms, unsigned long long ns, unsigned* started, cudaStream_t stream);

}  // namespace arcomm::gpu
