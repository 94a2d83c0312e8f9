#include <cuda_runtime_api.h>

#include "kernels/device/cuda_error.cuh"
#include "kernels/launch/stack_limit.h"

namespace arcomm {

Status give_back_stacks() {
  const cudaError_t set = cudaDeviceSetLimit(cudaLimitStackSize, 0);
  if (set != cudaSuccess) return device::cuda_error(set, "giving back the stacks of a GPU");
  return {};
}

}  // namespace arcomm
