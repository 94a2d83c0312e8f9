#include "transport/device/cuda/cuda_mapping.h"

#include <utility>
#include <vector>

#include "transport/device/cuda/cuda_runtime.h"

namespace arcomm {
namespace {

CUmemAllocationProp memory_on(int ordinal) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
  return wanted;
}

Result<std::uint64_t> whole_granules(const CudaDriver& driver, int ordinal, std::uint64_t bytes) {
  const CUmemAllocationProp wanted = memory_on(ordinal);
  std::size_t granularity = 0;
  const CUresult asked = driver.cuMemGetAllocationGranularity_(&granularity, &wanted,
                                                               CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (asked != CUDA_SUCCESS)
    return driver.failed(asked, "asking for the granularity of GPU memory");
  if (bytes == 0 || bytes > (std::uint64_t{1} << 46)) {
    return error(ErrorCode::OutOfRange, Reason::BadValue, bytes,
                 " bytes of GPU memory: not a size a GPU has");
  }
  return (bytes + granularity - 1) / granularity * granularity;
}

}  // namespace

Result<CudaMapping> CudaMapping::create(int home, std::uint64_t bytes,
                                        std::span<const int> accessible_from) {
  const Result<const CudaDriver*> driver = cuda_driver();
  if (!driver) return driver.error();
  const Result<std::uint64_t> rounded = whole_granules(**driver, home, bytes);
  if (!rounded) return rounded.error();
  const CUmemAllocationProp wanted = memory_on(home);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult made = (*driver)->cuMemCreate_(&handle, *rounded, &wanted, 0);
  if (made != CUDA_SUCCESS) return (*driver)->failed(made, "allocating GPU memory");
  return map(handle, *rounded, accessible_from);
}

Result<CudaMapping> CudaMapping::map(CUmemGenericAllocationHandle handle, std::uint64_t bytes,
                                     std::span<const int> accessible_from) {
  const CudaDriver& driver = **cuda_driver();
  CudaMapping mapping;  // gives back whatever part was made, should a step fail
  mapping.handle_ = handle;
  mapping.owns_handle_ = true;
  CUdeviceptr address = 0;
  CUresult done = driver.cuMemAddressReserve_(&address, bytes, 0, 0, 0);
  if (done != CUDA_SUCCESS) return driver.failed(done, "reserving addresses for GPU memory");
  done = driver.cuMemMap_(address, bytes, 0, handle, 0);
  if (done != CUDA_SUCCESS) {
    driver.cuMemAddressFree_(address, bytes);
    return driver.failed(done, "mapping GPU memory");
  }
  mapping.view_ = {reinterpret_cast<std::byte*>(address), bytes};
  std::vector<CUmemAccessDesc> access;
  for (const int ordinal : accessible_from) {
    access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  done = driver.cuMemSetAccess_(address, bytes, access.data(), access.size());
  if (done != CUDA_SUCCESS)
    return driver.failed(done, "giving GPUs access to memory: can they reach each other?");
  return mapping;
}

Result<UniqueFd> CudaMapping::export_fd() const {
  const CudaDriver& driver = **cuda_driver();
  int descriptor = -1;
  const CUresult done = driver.cuMemExportToShareableHandle_(
      &descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (done != CUDA_SUCCESS) return driver.failed(done, "exporting GPU memory as a descriptor");
  return UniqueFd(descriptor);
}

void CudaMapping::release() {
  if (!owns_handle_) return;
  const CudaDriver& driver = **cuda_driver();
  if (view_.data != nullptr) {
    const auto address = reinterpret_cast<CUdeviceptr>(view_.data);
    driver.cuMemUnmap_(address, view_.bytes);
    driver.cuMemAddressFree_(address, view_.bytes);
  }
  driver.cuMemRelease_(handle_);
  owns_handle_ = false;
}

CudaMapping::~CudaMapping() {
  release();
}

CudaMapping::CudaMapping(CudaMapping&& other) noexcept
    : view_(std::exchange(other.view_, {})),
      handle_(std::exchange(other.handle_, 0)),
      owns_handle_(std::exchange(other.owns_handle_, false)) {}

CudaMapping& CudaMapping::operator=(CudaMapping&& other) noexcept {
  if (this != &other) {
    release();
    view_ = std::exchange(other.view_, {});
    handle_ = std::exchange(other.handle_, 0);
    owns_handle_ = std::exchange(other.owns_handle_, false);
  }
  return *this;
}

}  // namespace arcomm
