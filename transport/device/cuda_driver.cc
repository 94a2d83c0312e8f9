#include "transport/device/cuda_driver.h"

#include <cstdio>

namespace arcomm {
namespace {

constexpr unsigned kOldestDriver =
    12000;  // CUDA 12.0: what the entry points below are asked for by

template <typename Function>
bool find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult state{};
  const cudaError_t asked =
      cudaGetDriverEntryPointByVersion(name, &found, kOldestDriver, cudaEnableDefault, &state);
  if (asked != cudaSuccess || state != cudaDriverEntryPointSuccess) return false;
  function = reinterpret_cast<Function>(found);
  return function != nullptr;
}

Result<CudaDriver> load() {
  CudaDriver driver;
  const bool whole =
      find("cuMemGetAllocationGranularity", driver.mem_get_allocation_granularity) &&
      find("cuMemCreate", driver.mem_create) && find("cuMemRelease", driver.mem_release) &&
      find("cuMemAddressReserve", driver.mem_address_reserve) &&
      find("cuMemAddressFree", driver.mem_address_free) && find("cuMemMap", driver.mem_map) &&
      find("cuMemUnmap", driver.mem_unmap) && find("cuMemSetAccess", driver.mem_set_access) &&
      find("cuMemExportToShareableHandle", driver.mem_export) &&
      find("cuMemImportFromShareableHandle", driver.mem_import) &&
      find("cuMemGetAddressRange", driver.mem_get_address_range) &&
      find("cuDeviceGetAttribute", driver.device_get_attribute) &&
      find("cuGetErrorName", driver.get_error_name);
  if (whole) return driver;
  cudaGetLastError();
  return error(
      ErrorCode::Unavailable, Reason::Unsupported,
      "no CUDA driver of version 12.0 or later answers: install one, or use the host backend "
      "(device.backend = \"host\")");
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

Error cuda_error(CUresult failure, const char* what) {
  const char* name = "an unknown error";
  if (const Result<const CudaDriver*> driver = cuda_driver())
    (*driver)->get_error_name(failure, &name);
  const bool memory = failure == CUDA_ERROR_OUT_OF_MEMORY;
  return error(memory ? ErrorCode::ResourceExhausted : ErrorCode::Internal,
               memory ? Reason::OutOfMemory : Reason::None, what, ": ", name);
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
  return driver && (*driver)->device_get_attribute != nullptr &&
         (*driver)->device_get_attribute(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, ordinal) ==
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
