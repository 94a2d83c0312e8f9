// The CUDA driver's functions, found at run time: the daemon starts where no driver is and says so,
// and libarclient and arctl, which link neither cudart nor libcuda, load where there is none. One
// list for all of them; every function on it is in CUDA 12.0. Any thread.
#pragma once

#include <cuda.h>

#include "proto/status.h"

namespace arcomm {

inline constexpr const char* kCudaDriverLibrary = "libcuda.so.1";

// X(function). cuda.h's macros turn some of these into names with a version.
#define ARC_CUDA_FUNCTIONS(X)               \
  X(cuInit)                                 \
  X(cuDriverGetVersion)                     \
  X(cuGetErrorName)                         \
  X(cuCtxGetCurrent)                        \
  X(cuCtxSetCurrent)                        \
  X(cuCtxPushCurrent)                       \
  X(cuCtxPopCurrent)                        \
  X(cuCtxGetDevice)                         \
  X(cuCtxGetExecAffinity)                   \
  X(cuCtxEnablePeerAccess)                  \
  X(cuCtxDisablePeerAccess)                 \
  X(cuDeviceGet)                            \
  X(cuDeviceGetName)                        \
  X(cuDeviceGetAttribute)                   \
  X(cuDeviceGetCount)                       \
  X(cuDeviceGetUuid)                        \
  X(cuDeviceCanAccessPeer)                  \
  X(cuDevicePrimaryCtxRetain)               \
  X(cuDevicePrimaryCtxRelease)              \
  X(cuThreadExchangeStreamCaptureMode)      \
  X(cuModuleLoadData)                       \
  X(cuModuleGetFunction)                    \
  X(cuFuncGetAttribute)                     \
  X(cuLaunchKernelEx)                       \
  X(cuStreamBatchMemOp)                     \
  X(cuStreamCreate)                         \
  X(cuStreamCreateWithPriority)             \
  X(cuStreamQuery)                          \
  X(cuStreamIsCapturing)                    \
  X(cuStreamBeginCapture)                   \
  X(cuStreamEndCapture)                     \
  X(cuGraphInstantiate)                     \
  X(cuGraphLaunch)                          \
  X(cuGraphDestroy)                         \
  X(cuGraphExecDestroy)                     \
  X(cuEventCreate)                          \
  X(cuEventRecord)                          \
  X(cuEventQuery)                           \
  X(cuMemAlloc)                             \
  X(cuMemFree)                              \
  X(cuMemsetD8Async)                        \
  X(cuMemcpyDtoDAsync)                      \
  X(cuMemcpyDtoHAsync)                      \
  X(cuMemcpyHtoDAsync)                      \
  X(cuMemcpyPeerAsync)                      \
  X(cuMemHostAlloc)                         \
  X(cuMemHostRegister)                      \
  X(cuMemHostUnregister)                    \
  X(cuMemHostGetDevicePointer)              \
  X(cuMemGetAddressRange)                   \
  X(cuPointerGetAttributes)                 \
  X(cuIpcGetMemHandle)                      \
  X(cuMemGetAllocationGranularity)          \
  X(cuMemCreate)                            \
  X(cuMemRelease)                           \
  X(cuMemRetainAllocationHandle)            \
  X(cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemExportToShareableHandle)           \
  X(cuMemImportFromShareableHandle)         \
  X(cuMemAddressReserve)                    \
  X(cuMemAddressFree)                       \
  X(cuMemMap)                               \
  X(cuMemUnmap)                             \
  X(cuMemSetAccess)

struct CudaDriver {
  // Unavailable (Unsupported) where there is no such library, or one too old. It stays loaded.
  static Result<CudaDriver> load(const char* library = kCudaDriverLibrary);
  // cuInit, which a process that uses cudart has behind it.
  Status start() const;

#define X(function) decltype(&::function) function##_ = nullptr;
  ARC_CUDA_FUNCTIONS(X)
#undef X
  CUresult (*load_function)(CUfunction) = nullptr;  // cuFuncLoad, from 12.4 on
  // cuEventElapsedTime, which older and newer drivers have under different names.
  CUresult (*event_elapsed_time)(float* ms, CUevent begin, CUevent end) = nullptr;

  const char* name_of(CUresult failure) const;
  // "what: CUDA_ERROR_..."
  Error failed(CUresult failure, const char* what) const;
  // Success, or failed().
  Status checked(CUresult result, const char* what) const;
};

}  // namespace arcomm
