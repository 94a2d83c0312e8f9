// What launch_cuda.cu knows of the algorithms, each of which has a file. launch_*: as
// launch_all_reduce(), 0 blocks for the algorithm's own rule. load_*: loads its kernels for that
// type and operation into the current GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/launch/cuda_scratch.h"
#include "kernels/launch/launch_blocks.h"
#include "kernels/launch/launch_cuda.h"

namespace arcomm::device {

cudaError_t launch_one_shot_ll16(const CudaAllReduce& call, std::uint32_t blocks,
                                 cudaStream_t stream);
cudaError_t load_one_shot_ll16(DType dtype, ReduceOp op);
cudaError_t launch_two_shot(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream);
cudaError_t load_two_shot(DType dtype, ReduceOp op);
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
cudaError_t load_combine(DType dtype, ReduceOp op);  // of copy_engine
cudaError_t launch_alone(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream);
cudaError_t load_alone(DType dtype);

// Whether data at that address can be moved in whole vectors of so many bytes.
inline bool lies_on(const void* pointer, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}
// The own input and output; the inputs and outputs of all ranks.
inline bool own_lie_on(const CudaAllReduce& call, std::uintptr_t bytes) {
  return lies_on(call.send[call.rank], bytes) && lies_on(call.recv[call.rank], bytes);
}
inline bool lie_on(const CudaAllReduce& call, std::uintptr_t bytes) {
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
    if (!lies_on(call.send[rank], bytes) || !lies_on(call.recv[rank], bytes)) return false;
  }
  return true;
}

}  // namespace arcomm::device
