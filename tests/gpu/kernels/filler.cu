#include "kernels/device/ptx.cuh"
#include "tests/gpu/kernels/filler.h"

namespace arcomm::gpu {
namespace {

constexpr std::uint64_t kLimitNs = 10'000'000'000;
constexpr std::uint32_t kThreads = 1024;
// Between two looks at host memory: a stranger's kernel computes, and leaves the bus alone.
constexpr std::uint32_t kLookNs = 500'000;

// All of an SM's shared memory, and half of its threads at least: nothing else fits beside it.
__global__ void __launch_bounds__(kThreads, 1) filler(const std::uint32_t* end) {
  extern __shared__ std::uint32_t taken[];
  if (threadIdx.x == 0) {
    const std::uint64_t begin = device::global_nanoseconds();
    taken[0] = 0;
    while (device::load_relaxed(end) == 0 && device::global_nanoseconds() - begin < kLimitNs)
      __nanosleep(kLookNs);
  }
  __syncthreads();
}

}  // namespace

cudaError_t fill_gpu(const std::uint32_t* end, cudaStream_t stream) {
  int gpu = 0, sms = 0, bytes = 0;
  cudaError_t done = cudaGetDevice(&gpu);
  if (done == cudaSuccess) done = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, gpu);
  if (done == cudaSuccess)
    done = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
  if (done == cudaSuccess)
    done = cudaFuncSetAttribute(filler, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (done != cudaSuccess) return done;
  filler<<<2 * sms, kThreads, bytes, stream>>>(end);
  return cudaGetLastError();
}

}  // namespace arcomm::gpu
