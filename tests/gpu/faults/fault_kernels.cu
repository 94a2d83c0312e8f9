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

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// An innocent one: it computes, and leaves the bus alone.
__global__ void __launch_bounds__(1024, kBlocksPerProcessor)
    hold_kernel(unsigned long long ns, unsigned* started) {
  const unsigned long long begin = nanoseconds();
  if (threadIdx.x == 0) atomicAdd_system(started, 1u);
  while (nanoseconds() - begin < ns) __nanosleep(100'000);
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

cudaError_t hold_processors(int sms, unsigned long long ns, unsigned* started,
                            cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(sms * kBlocksPerProcessor);
  hold_kernel<<<blocks, 1024, 0, stream>>>(ns, started);
  return cudaGetLastError();
}

}  // namespace arcomm::gpu
