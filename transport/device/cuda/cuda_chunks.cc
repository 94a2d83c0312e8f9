#include "transport/device/cuda/cuda_chunks.h"

#include <string>
#include <utility>

namespace arcomm {
namespace {

constexpr std::uint64_t kMostChunkBytes = std::uint64_t{1} << 46;  // no GPU has more
constexpr std::uint64_t kPageBytes = 4096;  // the driver's granules are whole pages, mostly 2 MiB

Error at_chunk(Error why, std::size_t number, std::uint64_t bytes) {
  why.message +=
      " (piece " + std::to_string(number) + ", said to have " + std::to_string(bytes) + " bytes)";
  return why;
}

Result<std::uint64_t> sum_of(std::span<const CudaChunks::Piece> chunks) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const CudaChunks::Piece& chunk = chunks[i];
    if (chunk.bytes == 0 || chunk.bytes > kMostChunkBytes - sum) {
      return error(ErrorCode::OutOfRange, Reason::BadValue, "a piece of GPU memory of ",
                   chunk.bytes, " bytes behind ", sum, ": not a size that a GPU has");
    }
    if (chunk.bytes % kPageBytes != 0) {
      return at_chunk(
          error(ErrorCode::InvalidArgument, Reason::BadValue, "GPU memory comes in whole pages"), i,
          chunk.bytes);
    }
    sum += chunk.bytes;
  }
  if (sum != 0) return sum;
  return error(ErrorCode::InvalidArgument, Reason::BadValue,
               "no piece of GPU memory was named: name 1 or more");
}

}  // namespace

Status CudaChunks::import(const CudaDriver& driver, std::span<const CudaChunks::Piece> chunks,
                          std::span<const int> accessible_from) {
  const Result<std::uint64_t> bytes = sum_of(chunks);
  if (!bytes) return bytes.error();
  CUdeviceptr base = 0;
  CUresult done = driver.cuMemAddressReserve_(&base, *bytes, 0, 0, 0);
  if (done != CUDA_SUCCESS) return driver.failed(done, "reserving addresses for GPU memory");
  driver_ = &driver;
  view_ = {reinterpret_cast<std::byte*>(base), *bytes};
  for (const CudaChunks::Piece& chunk : chunks) {
    if (const Status mapped = map(chunk); !mapped)
      return at_chunk(mapped.error(), bytes_.size(), chunk.bytes);
  }
  std::vector<CUmemAccessDesc> access;
  for (const int ordinal : accessible_from) {
    access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  done = driver.cuMemSetAccess_(base, *bytes, access.data(), access.size());
  if (done != CUDA_SUCCESS)
    return driver.failed(done, "giving GPUs access to memory: can they reach each other?");
  return {};
}

Status CudaChunks::map(const Piece& chunk) {
  CUmemGenericAllocationHandle handle = 0;
  CUresult done = CUDA_SUCCESS;
  if (chunk.descriptor >= 0) {
    done = driver_->cuMemImportFromShareableHandle_(
        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(chunk.descriptor)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  } else {
    FabricHandle fabric = chunk.fabric;
    done =
        driver_->cuMemImportFromShareableHandle_(&handle, fabric.data(), CU_MEM_HANDLE_TYPE_FABRIC);
  }
  if (done != CUDA_SUCCESS) return driver_->failed(done, "importing GPU memory");
  const auto where = reinterpret_cast<CUdeviceptr>(view_.data) + mapped_bytes_;
  done = driver_->cuMemMap_(where, chunk.bytes, 0, handle, 0);
  driver_->cuMemRelease_(handle);  // the mapping keeps the memory
  if (done != CUDA_SUCCESS) return driver_->failed(done, "mapping GPU memory");
  bytes_.push_back(chunk.bytes);
  mapped_bytes_ += chunk.bytes;
  return {};
}

void CudaChunks::release() {
  if (view_.data == nullptr) return;
  const auto base = reinterpret_cast<CUdeviceptr>(view_.data);
  CUdeviceptr where = base;
  for (const std::uint64_t bytes : bytes_) {
    driver_->cuMemUnmap_(where, bytes);
    where += bytes;
  }
  driver_->cuMemAddressFree_(base, view_.bytes);
  view_ = {};
  bytes_.clear();
  mapped_bytes_ = 0;
}

CudaChunks::~CudaChunks() {
  release();
}

CudaChunks::CudaChunks(CudaChunks&& other) noexcept
    : driver_(other.driver_),
      view_(std::exchange(other.view_, {})),
      bytes_(std::exchange(other.bytes_, {})),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

CudaChunks& CudaChunks::operator=(CudaChunks&& other) noexcept {
  if (this != &other) {
    release();
    driver_ = other.driver_;
    view_ = std::exchange(other.view_, {});
    bytes_ = std::exchange(other.bytes_, {});
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  }
  return *this;
}

}  // namespace arcomm
