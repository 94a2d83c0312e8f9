// The functions of CUDA's driver that the benchmark uses, found in the library that this machine
// has: arctl links neither cudart nor libcuda, and starts where there is no GPU. Any thread.
#pragma once

#include <cuda.h>

#include "proto/status.h"

namespace arcomm::arctl {

// X(function). cuda.h's macros turn some of these into names with a version.
#define ARCTL_CUDA_FUNCTIONS(X) \
  X(cuInit)                     \
  X(cuDriverGetVersion)         \
  X(cuGetErrorName)             \
  X(cuDeviceGetCount)           \
  X(cuDeviceGet)                \
  X(cuDeviceGetName)            \
  X(cuDeviceCanAccessPeer)      \
  X(cuDevicePrimaryCtxRetain)   \
  X(cuDevicePrimaryCtxRelease)  \
  X(cuCtxSetCurrent)            \
  X(cuCtxEnablePeerAccess)      \
  X(cuCtxDisablePeerAccess)     \
  X(cuMemAlloc)                 \
  X(cuMemFree)                  \
  X(cuMemHostAlloc)             \
  X(cuMemsetD8Async)            \
  X(cuMemcpyHtoDAsync)          \
  X(cuMemcpyDtoDAsync)          \
  X(cuMemcpyDtoHAsync)          \
  X(cuMemcpyPeerAsync)          \
  X(cuStreamCreate)             \
  X(cuStreamQuery)              \
  X(cuStreamBeginCapture)       \
  X(cuStreamEndCapture)         \
  X(cuEventCreate)              \
  X(cuEventRecord)              \
  X(cuGraphInstantiate)         \
  X(cuGraphLaunch)              \
  X(cuGraphDestroy)             \
  X(cuGraphExecDestroy)

struct CudaDriver {
  // Once per process, initialised; the library stays loaded.
  static Result<const CudaDriver*> load();

#define X(function) decltype(&::function) function##_ = nullptr;
  ARCTL_CUDA_FUNCTIONS(X)
#undef X
  // Older and newer drivers have it under different names.
  CUresult (*event_elapsed_time)(float* ms, CUevent begin, CUevent end) = nullptr;

  // Success, or "what: CUDA_ERROR_...".
  Status checked(CUresult result, const char* what) const;
};

}  // namespace arcomm::arctl
