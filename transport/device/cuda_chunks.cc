#include "transport/device/cuda_chunks.h"

#include <utility>

#include "transport/device/cuda_driver.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kMostChunkBytes = std::uint64_t{1} << 46;  // no GPU has more

Result<std::uint64_t> sum_of(std::span<const MemoryChunk> chunks) {
  std::uint64_t sum = 0;
  for (const MemoryChunk& chunk : chunks) {
    if (chunk.bytes == 0 || chunk.bytes > kMostChunkBytes - sum) {
      return error(ErrorCode::OutOfRange, Reason::BadValue, "a piece of GPU memory of ",
                   chunk.bytes, " bytes behind ", sum, ": not a size that a GPU has");
    }
    sum += chunk.bytes;
  }
  if (sum != 0) return sum;
  return error(ErrorCode::InvalidArgument, Reason::BadValue,
               "no piece of GPU memory was named: name 1 or more");
}

// What is wrong with the client's memory is the client's mistake.
Error at_chunk(Error why, std::size_t number, std::uint64_t bytes) {
  why.message += " (piece " + std::to_string(number) + ", said to have " + std::to_string(bytes) +
                 " bytes): each must be an allocation of cuMemCreate on this node, named with its "
                 "whole size, by a descriptor of cuMemExportToShareableHandle or a fabric handle";
  if (why.code == ErrorCode::Internal) {
    why.code = ErrorCode::InvalidArgument;
    why.reason = Reason::BadValue;
  }
  return why;
}

}  // namespace

Result<CudaChunks> CudaChunks::import(std::span<const MemoryChunk> chunks,
                                      std::span<const int> accessible_from) {
  const Result<const CudaDriver*> found = cuda_driver();
  if (!found) return found.error();
  const CudaDriver& driver = **found;
  const Result<std::uint64_t> bytes = sum_of(chunks);
  if (!bytes) return bytes.error();
  CUdeviceptr base = 0;
  CUresult done = driver.mem_address_reserve(&base, *bytes, 0, 0, 0);
  if (done != CUDA_SUCCESS)
    return at_chunk(cuda_error(done, "reserving addresses for GPU memory"), 0, *bytes);
  CudaChunks mapping;  // gives back whatever part was made, should a step fail
  mapping.view_ = {reinterpret_cast<std::byte*>(base), *bytes};
  for (const MemoryChunk& chunk : chunks) {
    if (const Status mapped = mapping.map(chunk); !mapped)
      return at_chunk(mapped.error(), mapping.bytes_.size(), chunk.bytes);
  }
  std::vector<CUmemAccessDesc> access;
  for (const int ordinal : accessible_from) {
    access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  done = driver.mem_set_access(base, *bytes, access.data(), access.size());
  if (done != CUDA_SUCCESS)
    return cuda_error(done, "giving GPUs access to memory: can they reach each other?");
  return mapping;
}

Status CudaChunks::map(const MemoryChunk& chunk) {
  const CudaDriver& driver = **cuda_driver();
  CUmemGenericAllocationHandle handle = 0;
  CUresult done = CUDA_SUCCESS;
  if (chunk.memory) {
    done = driver.mem_import(
        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(chunk.memory.get())),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  } else {
    FabricHandle fabric = chunk.fabric;
    done = driver.mem_import(&handle, fabric.data(), CU_MEM_HANDLE_TYPE_FABRIC);
  }
  if (done != CUDA_SUCCESS) return cuda_error(done, "importing GPU memory");
  const auto where = reinterpret_cast<CUdeviceptr>(view_.data) + mapped_bytes_;
  done = driver.mem_map(where, chunk.bytes, 0, handle, 0);
  driver.mem_release(handle);  // the mapping keeps the memory
  if (done != CUDA_SUCCESS) return cuda_error(done, "mapping GPU memory");
  bytes_.push_back(chunk.bytes);
  mapped_bytes_ += chunk.bytes;
  return {};
}

void CudaChunks::release() {
  if (view_.data == nullptr) return;
  const CudaDriver& driver = **cuda_driver();
  const auto base = reinterpret_cast<CUdeviceptr>(view_.data);
  CUdeviceptr where = base;
  for (const std::uint64_t bytes : bytes_) {
    driver.mem_unmap(where, bytes);
    where += bytes;
  }
  driver.mem_address_free(base, view_.bytes);
  view_ = {};
  bytes_.clear();
  mapped_bytes_ = 0;
}

CudaChunks::~CudaChunks() {
  release();
}

CudaChunks::CudaChunks(CudaChunks&& other) noexcept
    : view_(std::exchange(other.view_, {})),
      bytes_(std::exchange(other.bytes_, {})),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

CudaChunks& CudaChunks::operator=(CudaChunks&& other) noexcept {
  if (this != &other) {
    release();
    view_ = std::exchange(other.view_, {});
    bytes_ = std::exchange(other.bytes_, {});
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  }
  return *this;
}

}  // namespace arcomm
