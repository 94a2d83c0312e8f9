#include <cstdint>

#include "tests/gpu/faults/fault_kernels.h"

namespace arcomm::gpu {
namespace {

__global__ void write_kernel(unsigned* where) {
  *where = 1;
}

__global__ void count_kernel(unsigned* count) {
  if (threadIdx.x == 0) atomicAdd(count, 1u);
}

}  // namespace

cudaError_t write_to_nobodys_memory(cudaStream_t stream) {
  // The first pages are never mapped.
  write_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<unsigned*>(std::uintptr_t{4096}));
  return cudaGetLastError();
}

cudaError_t fill_processors(int sms, unsigned* count, cudaStream_t stream) {
  count_kernel<<<static_cast<unsigned>(sms * kBlocksPerProcessor), 1024, 0, stream>>>(count);
  return cudaGetLastError();
}

}  // namespace arcomm::gpu
