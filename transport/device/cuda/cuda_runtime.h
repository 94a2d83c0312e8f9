// What the daemon's CUDA code shares: this process's driver, CUDA's failures as errors, and the
// device that is current. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "proto/status.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm {

// Of this process, loaded once. Unavailable (Unsupported) where there is none, or one too old.
Result<const CudaDriver*> cuda_driver();

// NotRunning where MPS recovers from a fault, which gets better by itself.
Error cuda_error(cudaError_t failure, const char* what);

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
