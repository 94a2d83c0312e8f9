// From the host: how the kernels of all algorithms are launched and loaded.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/launch_cuda.h"

namespace arcomm::device {

struct LaunchShape {
  std::uint32_t blocks = 1, threads = 1, shared_bytes = 0;
};

// kernel(call, more...). A gated one begins when the gate that precedes it in the stream lets it,
// without waiting until that kernel has ended and what it wrote has been flushed: the microseconds
// that this takes are what gates are there to save. Before Hopper it begins after the gate's end.
template <typename... Parameters, typename... More>
cudaError_t launch(void (*kernel)(CudaAllReduce, Parameters...), const CudaAllReduce& call,
                   LaunchShape shape, cudaStream_t stream, const More&... more) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = call.gated ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, call, static_cast<Parameters>(more)...);
}

template <typename Kernel>
cudaError_t load(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

// kernel_for(ranks) for as many ranks as there can be.
template <typename KernelFor>
cudaError_t load_for_all_ranks(KernelFor kernel_for) {
  cudaError_t loaded = cudaSuccess;
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks && loaded == cudaSuccess; ++ranks)
    loaded = load(kernel_for(ranks));
  return loaded;
}

}  // namespace arcomm::device
