#include "transport/device/cuda/cuda_mapping.h"

#include <algorithm>
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
                                        std::span<const int> accessible_from,
                                        std::uint64_t most_bytes) {
  const Result<const CudaDriver*> driver = cuda_driver();
  if (!driver) return driver.error();
  const Result<std::uint64_t> rounded = whole_granules(**driver, home, bytes);
  if (!rounded) return rounded.error();
  const Result<std::uint64_t> most = whole_granules(**driver, home, std::max(*rounded, most_bytes));
  if (!most) return most.error();
  CudaMapping mapping;  // gives back whatever part was made, should a step fail
  ARC_RETURN_IF_ERROR(mapping.reserve(*most));
  ARC_RETURN_IF_ERROR(mapping.add(home, *rounded, accessible_from));
  return mapping;
}

Status CudaMapping::reserve(std::uint64_t bytes) {
  const CudaDriver& driver = **cuda_driver();
  CUdeviceptr address = 0;
  const CUresult done = driver.cuMemAddressReserve_(&address, bytes, 0, 0, 0);
  if (done != CUDA_SUCCESS) return driver.failed(done, "reserving addresses for GPU memory");
  view_ = {reinterpret_cast<std::byte*>(address), 0};
  reserved_bytes_ = bytes;
  return {};
}

Status CudaMapping::add(int home, std::uint64_t bytes, std::span<const int> accessible_from) {
  const CudaDriver& driver = **cuda_driver();
  const CUmemAllocationProp wanted = memory_on(home);
  CUmemGenericAllocationHandle handle = 0;
  CUresult done = driver.cuMemCreate_(&handle, bytes, &wanted, 0);
  if (done != CUDA_SUCCESS) return driver.failed(done, "allocating GPU memory");
  const auto address = reinterpret_cast<CUdeviceptr>(view_.data) + view_.bytes;
  done = driver.cuMemMap_(address, bytes, 0, handle, 0);
  if (done != CUDA_SUCCESS) {
    driver.cuMemRelease_(handle);
    return driver.failed(done, "mapping GPU memory");
  }
  std::vector<CUmemAccessDesc> access;
  for (const int ordinal : accessible_from) {
    access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  done = driver.cuMemSetAccess_(address, bytes, access.data(), access.size());
  if (done != CUDA_SUCCESS) {
    driver.cuMemUnmap_(address, bytes);
    driver.cuMemRelease_(handle);
    return driver.failed(done, "giving GPUs access to memory: can they reach each other?");
  }
  pieces_.push_back({.handle = handle, .bytes = bytes});
  view_.bytes += bytes;
  return {};
}

Status CudaMapping::grow(int home, std::uint64_t bytes, std::span<const int> accessible_from) {
  const Result<std::uint64_t> rounded = whole_granules(**cuda_driver(), home, bytes);
  if (!rounded) return rounded.error();
  if (*rounded > reserved_bytes_) {
    return error(ErrorCode::OutOfRange, Reason::BadValue, "GPU memory cannot grow to ", bytes,
                 " bytes: addresses were reserved for ", reserved_bytes_);
  }
  if (*rounded <= view_.bytes) return {};
  return add(home, *rounded - view_.bytes, accessible_from);
}

Result<UniqueFd> CudaMapping::export_fd() const {
  const CudaDriver& driver = **cuda_driver();
  int descriptor = -1;
  const CUresult done = driver.cuMemExportToShareableHandle_(
      &descriptor, pieces_.front().handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (done != CUDA_SUCCESS) return driver.failed(done, "exporting GPU memory as a descriptor");
  return UniqueFd(descriptor);
}

void CudaMapping::remove_last() {
  const CudaDriver& driver = **cuda_driver();
  const Piece last = pieces_.back();
  pieces_.pop_back();
  view_.bytes -= last.bytes;
  driver.cuMemUnmap_(reinterpret_cast<CUdeviceptr>(view_.data) + view_.bytes, last.bytes);
  driver.cuMemRelease_(last.handle);
}

void CudaMapping::cut_back() {
  while (pieces_.size() > 1) remove_last();
}

void CudaMapping::release() {
  if (reserved_bytes_ == 0) return;
  while (!pieces_.empty()) remove_last();
  const CudaDriver& driver = **cuda_driver();
  driver.cuMemAddressFree_(reinterpret_cast<CUdeviceptr>(view_.data),
                           std::exchange(reserved_bytes_, 0));
}

CudaMapping::~CudaMapping() {
  release();
}

CudaMapping::CudaMapping(CudaMapping&& other) noexcept
    : view_(std::exchange(other.view_, {})),
      reserved_bytes_(std::exchange(other.reserved_bytes_, 0)),
      pieces_(std::exchange(other.pieces_, {})) {}

CudaMapping& CudaMapping::operator=(CudaMapping&& other) noexcept {
  if (this != &other) {
    release();
    view_ = std::exchange(other.view_, {});
    reserved_bytes_ = std::exchange(other.reserved_bytes_, 0);
    pieces_ = std::exchange(other.pieces_, {});
  }
  return *this;
}

}  // namespace arcomm
