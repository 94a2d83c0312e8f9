// From the host: how the kernels of all algorithms are launched and loaded. Needs no nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/launch/launch_cuda.h"
#include "proto/gpu/early_launch.h"

namespace arcomm::device {

struct LaunchShape {
  std::uint32_t blocks = 1, threads = 1, shared_bytes = 0;
};

// Each thread of the current GPU has a stack of so many bytes at least. May wait for what this
// process runs there.
inline cudaError_t make_room_for_stacks(std::size_t bytes) {
  std::size_t limit = 0;
  const cudaError_t known = cudaDeviceGetLimit(&limit, cudaLimitStackSize);
  if (known != cudaSuccess || bytes <= limit) return known;
  return cudaDeviceSetLimit(cudaLimitStackSize, bytes);
}

// Loads a kernel into the current GPU, and makes room for its stack: a kernel that is loaded by its
// first launch, or finds stacks too small, waits there for what runs.
template <typename Kernel>
cudaError_t load(Kernel* kernel) {
  cudaFuncAttributes attributes{};
  const cudaError_t loaded =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  return loaded == cudaSuccess ? make_room_for_stacks(attributes.localSizeBytes) : loaded;
}

// Whether the code that the current GPU has of a kernel may be launched early
// (proto/gpu/early_launch.h). Loads it.
inline cudaError_t ask_for_early_launch(const void* kernel, bool& may) {
  cudaFuncAttributes loaded{};
  int driver = 0;
  cudaError_t asked = cudaFuncGetAttributes(&loaded, kernel);
  if (asked == cudaSuccess) asked = cudaDriverGetVersion(&driver);
  may = asked == cudaSuccess && may_launch_early(loaded.ptxVersion, driver);
  return asked;
}

// arguments: as cudaLaunchKernel takes them.
inline cudaError_t launch(const void* kernel, LaunchShape shape, cudaStream_t stream, bool early,
                          void** arguments) {
  cudaLaunchAttribute serialization{};
  serialization.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  serialization.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &serialization;
  config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

// kernel(call, more...). A gated one begins when the gate that precedes it in the stream lets it,
// without waiting until that kernel has ended and what it wrote has been flushed: gates are there
// to save the microseconds that this takes. Code that may not be launched early begins after the
// gate's end.
template <typename... Parameters, typename... More>
cudaError_t launch(void (*kernel)(CudaAllReduce, Parameters...), const CudaAllReduce& call,
                   LaunchShape shape, cudaStream_t stream, const More&... more) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  bool early = false;
  if (call.gated) {
    const cudaError_t asked = ask_for_early_launch(function, early);
    if (asked != cudaSuccess) return asked;
  }
  const auto launch_with = [&](CudaAllReduce own, Parameters... parameters) {
    void* arguments[] = {&own, &parameters...};
    return launch(function, shape, stream, early, arguments);
  };
  return launch_with(call, static_cast<Parameters>(more)...);
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
