// The CUDA driver's functions, found at run time: a daemon built with CUDA also starts where no
// driver is, and says so. And CUDA's failures as errors. Any thread.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "proto/status.h"

namespace arcomm {

// What the runtime library does not offer: memory that is created, mapped and exported as separate
// steps.
struct CudaDriver {
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&cuMemCreate) mem_create = nullptr;
  decltype(&cuMemRelease) mem_release = nullptr;
  decltype(&cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&cuMemAddressFree) mem_address_free = nullptr;
  decltype(&cuMemMap) mem_map = nullptr;
  decltype(&cuMemUnmap) mem_unmap = nullptr;
  decltype(&cuMemSetAccess) mem_set_access = nullptr;
  decltype(&cuMemExportToShareableHandle) mem_export = nullptr;
  decltype(&cuMemImportFromShareableHandle) mem_import = nullptr;
  decltype(&cuMemGetAddressRange) mem_get_address_range = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&cuGetErrorName) get_error_name = nullptr;
};

// Unavailable (Unsupported) where there is no driver, or one too old.
Result<const CudaDriver*> cuda_driver();

// NotRunning where MPS recovers from a fault, which gets better by itself.
Error cuda_error(cudaError_t failure, const char* what);
Error cuda_error(CUresult failure, const char* what);

std::string cuda_uuid_text(const cudaUUID_t& uuid);  // "GPU-<uuid>", as nvidia-smi -L says it
bool is_under_mps(int ordinal);  // this process is a client of an MPS server there

// Runs a piece of code with a device current, and puts back the one that was.
class CurrentCudaDevice {
 public:
  explicit CurrentCudaDevice(int ordinal);
  ~CurrentCudaDevice();
  CurrentCudaDevice(const CurrentCudaDevice&) = delete;
  CurrentCudaDevice& operator=(const CurrentCudaDevice&) = delete;

 private:
  int before_ = -1;
};

}  // namespace arcomm
