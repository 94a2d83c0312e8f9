// The CUDA driver's functions, found in the library that the process runs with: libarclient links
// neither cudart nor libcuda, and loads into processes that have neither. Any thread.
#pragma once

#include <cuda.h>

#include "proto/status.h"

namespace arcomm::client {

// X(function). cuda.h's macros turn some of these into names with a version.
#define ARC_CUDA_FUNCTIONS(X)               \
  X(cuInit)                                 \
  X(cuDriverGetVersion)                     \
  X(cuGetErrorName)                         \
  X(cuCtxGetCurrent)                        \
  X(cuCtxPushCurrent)                       \
  X(cuCtxPopCurrent)                        \
  X(cuCtxGetDevice)                         \
  X(cuDeviceGet)                            \
  X(cuDeviceGetAttribute)                   \
  X(cuDeviceGetCount)                       \
  X(cuDeviceGetUuid)                        \
  X(cuDevicePrimaryCtxRetain)               \
  X(cuThreadExchangeStreamCaptureMode)      \
  X(cuModuleLoadData)                       \
  X(cuModuleGetFunction)                    \
  X(cuFuncGetAttribute)                     \
  X(cuLaunchKernelEx)                       \
  X(cuStreamBatchMemOp)                     \
  X(cuStreamCreateWithPriority)             \
  X(cuStreamIsCapturing)                    \
  X(cuEventCreate)                          \
  X(cuEventRecord)                          \
  X(cuEventQuery)                           \
  X(cuMemcpyDtoHAsync)                      \
  X(cuMemcpyHtoDAsync)                      \
  X(cuMemHostAlloc)                         \
  X(cuMemHostRegister)                      \
  X(cuMemHostUnregister)                    \
  X(cuMemHostGetDevicePointer)              \
  X(cuMemGetAddressRange)                   \
  X(cuPointerGetAttributes)                 \
  X(cuIpcGetMemHandle)                      \
  X(cuMemRetainAllocationHandle)            \
  X(cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemExportToShareableHandle)           \
  X(cuMemImportFromShareableHandle)         \
  X(cuMemAddressReserve)                    \
  X(cuMemAddressFree)                       \
  X(cuMemMap)                               \
  X(cuMemUnmap)                             \
  X(cuMemSetAccess)                         \
  X(cuMemRelease)

struct CudaApi {
  // Initialised; the library stays loaded.
  static Result<CudaApi> load(const char* library);

#define X(function) decltype(&::function) function##_ = nullptr;
  ARC_CUDA_FUNCTIONS(X)
#undef X
  CUresult (*load_function)(CUfunction) = nullptr;  // cuFuncLoad, from 12.4 on

  const char* name_of(CUresult failure) const;
  // "what: CUDA_ERROR_..."
  Error failed(CUresult failure, const char* what) const;
};

}  // namespace arcomm::client
