// What launch_cuda.cu knows of the algorithms, one file each.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/launch_cuda.h"

namespace arcomm::device {

cudaError_t launch_one_shot_ll16(const CudaAllReduce& call, std::uint32_t blocks,
                                 cudaStream_t stream);
cudaError_t load_one_shot_ll16(DType dtype, ReduceOp op);
cudaError_t launch_two_shot_direct(const CudaAllReduce& call, std::uint32_t blocks,
                                   cudaStream_t stream);
cudaError_t load_two_shot_direct(DType dtype, ReduceOp op);

}  // namespace arcomm::device
