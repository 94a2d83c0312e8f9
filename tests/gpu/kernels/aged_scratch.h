// A scratch of launched operations as it is after so many of them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace arcomm::gpu {

// On the current GPU, of a scratch that nothing uses: so many operations have ended well, and as
// many gates of either parity have passed. `before`: even.
cudaError_t age_scratch(void* scratch, std::uint32_t before, cudaStream_t stream);

}  // namespace arcomm::gpu
