// A kernel as the client puts it into callers' streams. Thread: any, once loaded.
#pragma once

#include <cstdint>

#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

struct CudaKernel {
  CUfunction function = nullptr;
  // Before it touches what callers see it waits for what is before it in the stream
  // (grid_dependency_wait() in the kernels' assembly), so it may be launched while that is
  // still on its way out: proto/gpu/early_launch.h says which code and which driver can do that.
  bool waits_itself = false;
};

// Loads it at once, whatever CUDA_MODULE_LOADING says. The module's context is current.
Result<CudaKernel> load_kernel(const CudaDriver& api, CUmodule module, const char* name);

// parameter: the kernel's only one. The stream's context is current.
CUresult launch(const CudaDriver& api, const CudaKernel& kernel, std::uint32_t blocks,
                std::uint32_t threads, void* stream, void* parameter);

}  // namespace arcomm::client
