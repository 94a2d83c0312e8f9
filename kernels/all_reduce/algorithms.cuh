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
cudaError_t launch_stream(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream);
cudaError_t load_stream(DType dtype, ReduceOp op);
cudaError_t launch_flash(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream);
cudaError_t load_flash(DType dtype, ReduceOp op);
cudaError_t launch_one_shot_ll128(const CudaAllReduce& call, std::uint32_t blocks,
                                  cudaStream_t stream);
cudaError_t load_one_shot_ll128(DType dtype, ReduceOp op);
cudaError_t launch_two_shot_ll128(const CudaAllReduce& call, std::uint32_t blocks,
                                  cudaStream_t stream);
cudaError_t load_two_shot_ll128(DType dtype, ReduceOp op);
cudaError_t launch_tiled_push(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream);
cudaError_t load_tiled_push(DType dtype, ReduceOp op);
cudaError_t load_copy_engine(DType dtype, ReduceOp op);
cudaError_t launch_alone(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream);
cudaError_t load_alone(DType dtype);

// Whether all inputs and outputs start on a multiple of `bytes`: then whole vectors can be moved.
inline bool lie_on(const CudaAllReduce& call, std::uintptr_t bytes) {
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
    if (reinterpret_cast<std::uintptr_t>(call.send[rank]) % bytes != 0) return false;
    if (reinterpret_cast<std::uintptr_t>(call.recv[rank]) % bytes != 0) return false;
  }
  return true;
}

}  // namespace arcomm::device
