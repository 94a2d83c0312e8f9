// The rest of what a driver of CUDA 12 has and programs of this project look up, under the names
// that the library exports: a call says that it is not supported. Apart from cuda.cc, since cuda.h
// declares them with their arguments.
#define ABSENT_FUNCTIONS(X)                 \
  X(cuCtxGetCurrent)                        \
  X(cuCtxGetDevice)                         \
  X(cuCtxGetExecAffinity)                   \
  X(cuCtxPopCurrent_v2)                     \
  X(cuCtxPushCurrent_v2)                    \
  X(cuDeviceGetUuid_v2)                     \
  X(cuEventQuery)                           \
  X(cuFuncGetAttribute)                     \
  X(cuIpcGetMemHandle)                      \
  X(cuLaunchKernelEx)                       \
  X(cuMemAddressFree)                       \
  X(cuMemAddressReserve)                    \
  X(cuMemCreate)                            \
  X(cuMemExportToShareableHandle)           \
  X(cuMemGetAddressRange_v2)                \
  X(cuMemGetAllocationGranularity)          \
  X(cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemHostGetDevicePointer_v2)           \
  X(cuMemHostRegister_v2)                   \
  X(cuMemHostUnregister)                    \
  X(cuMemImportFromShareableHandle)         \
  X(cuMemMap)                               \
  X(cuMemRelease)                           \
  X(cuMemRetainAllocationHandle)            \
  X(cuMemSetAccess)                         \
  X(cuMemUnmap)                             \
  X(cuModuleGetFunction)                    \
  X(cuModuleLoadData)                       \
  X(cuPointerGetAttributes)                 \
  X(cuStreamBatchMemOp_v2)                  \
  X(cuStreamCreateWithPriority)             \
  X(cuStreamIsCapturing)                    \
  X(cuThreadExchangeStreamCaptureMode)

extern "C" {
#define X(name) \
  int name() {  \
    return 801; \
  }  // CUDA_ERROR_NOT_SUPPORTED
ABSENT_FUNCTIONS(X)
#undef X
}
