#include "transport/device/cuda/cuda_runtime.h"

#include <cstdio>
#include <utility>

namespace arcomm {
namespace {

Result<CudaDriver> load() {
  Result<CudaDriver> driver = CudaDriver::load();
  if (driver) return driver;
  Error why = std::move(driver).error();
  why.message += "; or use the host backend (device.backend = \"host\")";
  return why;
}

}  // namespace

Result<const CudaDriver*> cuda_driver() {
  static const Result<CudaDriver> driver = load();
  if (!driver) return driver.error();
  return &driver.value();
}

Error cuda_error(cudaError_t failure, const char* what) {
  if (failure == cudaErrorMpsServerNotReady || failure == cudaErrorMpsRpcFailure) {
    return error(ErrorCode::Unavailable, Reason::NotRunning, what, ": ", cudaGetErrorName(failure),
                 " (after a GPU fault MPS serves again when all processes that it served then have "
                 "ended: nvidia-smi lists them)");
  }
  const bool memory = failure == cudaErrorMemoryAllocation;
  return error(memory ? ErrorCode::ResourceExhausted : ErrorCode::Internal,
               memory ? Reason::OutOfMemory : Reason::None, what, ": ", cudaGetErrorName(failure),
               " (", cudaGetErrorString(failure), ")");
}

std::string cuda_uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    std::snprintf(digits, sizeof(digits), dash ? "-%02x" : "%02x",
                  static_cast<unsigned char>(uuid.bytes[i]));
    text += digits;
  }
  return text;
}

bool is_under_mps(int ordinal) {
  const Result<const CudaDriver*> driver = cuda_driver();
  int enabled = 0;
  return driver &&
         (*driver)->cuDeviceGetAttribute_(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, ordinal) ==
             CUDA_SUCCESS &&
         enabled != 0;
}

CurrentCudaDevice::CurrentCudaDevice(int ordinal) {
  cudaGetDevice(&before_);
  if (before_ != ordinal) cudaSetDevice(ordinal);
}

CurrentCudaDevice::~CurrentCudaDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

}  // namespace arcomm
