#include "transport/device/cuda/cuda_import.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "transport/device/cuda/cuda_chunks.h"
#include "transport/device/cuda/cuda_runtime.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;  // as CudaMapping::create

MemoryRef part(std::byte* base, const MemoryHandle& handle) {
  return {base + handle.offset_bytes, handle.length_bytes};
}

Error not_ours_to_export() {
  return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
               "imported GPU memory is its maker's to export");
}

class PartOfChunks final : public Memory::Backing {
 public:
  PartOfChunks(CudaChunks chunks, const MemoryHandle& handle)
      : chunks_(std::move(chunks)), handle_(handle) {}
  MemoryRef view() const override { return part(chunks_.view().data, handle_); }
  Result<UniqueFd> export_fd() const override { return not_ours_to_export(); }

 private:
  CudaChunks chunks_;
  MemoryHandle handle_;
};

// One opening for each GPU: the mapping that it makes serves the GPU alone that was current. The
// driver counts how often a handle is open on a GPU, so every one of these closes its own.
class IpcPart final : public Memory::Backing {
 public:
  explicit IpcPart(const MemoryHandle& handle) : handle_(handle) {}
  ~IpcPart() override {
    for (const Opened& one : opened_) {
      const CurrentCudaDevice current(one.ordinal);
      if (cudaIpcCloseMemHandle(one.base) != cudaSuccess) cudaGetLastError();
    }
  }
  IpcPart(const IpcPart&) = delete;
  IpcPart& operator=(const IpcPart&) = delete;

  // The first is the one that view() tells.
  cudaError_t open_on(int ordinal) {
    const CurrentCudaDevice current(ordinal);
    cudaIpcMemHandle_t opaque{};
    static_assert(sizeof(opaque) == sizeof(handle_.opaque));
    std::memcpy(&opaque, handle_.opaque.data(), sizeof(opaque));
    void* base = nullptr;
    const cudaError_t done = cudaIpcOpenMemHandle(&base, opaque, cudaIpcMemLazyEnablePeerAccess);
    if (done == cudaSuccess) {
      opened_.push_back({ordinal, base});
    } else {
      cudaGetLastError();
    }
    return done;
  }
  std::byte* base() const { return static_cast<std::byte*>(opened_.front().base); }

  MemoryRef view() const override { return part(base(), handle_); }
  std::byte* data_on(int ordinal) const override {
    for (const Opened& one : opened_) {
      if (one.ordinal == ordinal) return part(static_cast<std::byte*>(one.base), handle_).data;
    }
    return nullptr;
  }
  Result<UniqueFd> export_fd() const override { return not_ours_to_export(); }

 private:
  struct Opened {
    int ordinal;
    void* base;
  };
  MemoryHandle handle_;
  std::vector<Opened> opened_;
};

// Rather than a device in error, which every call then reports.
bool is_callers_mistake(cudaError_t failure) {
  return failure == cudaErrorInvalidValue || failure == cudaErrorInvalidResourceHandle ||
         failure == cudaErrorMapBufferObjectFailed || failure == cudaErrorInvalidDevice ||
         failure == cudaErrorNotSupported || failure == cudaErrorDeviceUninitialized;
}

Status check_range(const MemoryHandle& handle) {
  if (handle.length_bytes == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "a range of 0 bytes of GPU memory was asked for; ask for 1 or more");
  }
  if (handle.allocation_bytes == 0 || handle.allocation_bytes > kMostBytes) {
    return error(ErrorCode::OutOfRange, Reason::BadValue, "an allocation of ",
                 handle.allocation_bytes, " bytes: not a size a GPU has");
  }
  if (handle.offset_bytes > handle.allocation_bytes ||
      handle.length_bytes > handle.allocation_bytes - handle.offset_bytes) {
    return error(ErrorCode::OutOfRange, Reason::OutOfBounds, "bytes ", handle.offset_bytes, " + ",
                 handle.length_bytes, " are not inside the allocation's ", handle.allocation_bytes,
                 " bytes");
  }
  return {};
}

// What came is device memory of `home` and reaches as far as its maker says.
Status check_found(const std::byte* base, std::uint64_t claimed_bytes, int home) {
  cudaPointerAttributes found{};
  if (const cudaError_t asked = cudaPointerGetAttributes(&found, base); asked != cudaSuccess) {
    cudaGetLastError();
    return cuda_error(asked, "asking where imported memory lives");
  }
  if (found.type != cudaMemoryTypeDevice || found.device != home) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "the imported memory does not live on the GPU that was named (GPU ", home,
                 " of the daemon) but on ",
                 found.type == cudaMemoryTypeDevice ? "GPU " + std::to_string(found.device)
                                                    : std::string("the host"),
                 ": register it with the GPU that it was allocated on");
  }
  const Result<const CudaDriver*> driver = cuda_driver();
  if (!driver) return driver.error();
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(base);
  const CUresult asked = (*driver)->cuMemGetAddressRange_(&start, &bytes, address);
  if (asked != CUDA_SUCCESS) return (*driver)->failed(asked, "asking how large imported memory is");
  const std::uint64_t there = start + bytes - address;
  if (claimed_bytes > there) {
    return error(ErrorCode::InvalidArgument, Reason::OutOfBounds,
                 "the allocation was said to have ", claimed_bytes, " bytes and has ", there,
                 ": pass the size that cuMemGetAddressRange gives in the process that made it");
  }
  return {};
}

// What is wrong with the client's memory is the client's mistake.
Status import_offered(std::span<const CudaChunks::Piece> chunks,
                      std::span<const int> accessible_from, CudaChunks& mapped) {
  const Result<const CudaDriver*> driver = cuda_driver();
  if (!driver) return driver.error();
  Status imported = mapped.import(**driver, chunks, accessible_from);
  if (imported) return imported;
  Error why = std::move(imported).error();
  why.message +=
      ": each must be an allocation of cuMemCreate on this node, named with its whole size "
      "(allocation_bytes), by a descriptor of cuMemExportToShareableHandle or a fabric handle";
  if (why.code == ErrorCode::Internal) {
    why.code = ErrorCode::InvalidArgument;
    why.reason = Reason::BadValue;
  }
  return why;
}

Status import_descriptor(const MemoryHandle& handle, int descriptor, int home,
                         std::span<const int> accessible_from, Memory& memory) {
  const CudaChunks::Piece whole{.descriptor = descriptor, .bytes = handle.allocation_bytes};
  CudaChunks mapped;
  const Status imported = import_offered({&whole, 1}, accessible_from, mapped);
  const std::byte* base = mapped.view().data;
  if (base != nullptr) memory = Memory(std::make_unique<PartOfChunks>(std::move(mapped), handle));
  ARC_RETURN_IF_ERROR(imported);
  return check_found(base, handle.allocation_bytes, home);
}

Status import_ipc(const MemoryHandle& handle, int home, std::span<const int> accessible_from,
                  Memory& memory) {
  auto made = std::make_unique<IpcPart>(handle);
  IpcPart& opening = *made;
  cudaError_t opened = opening.open_on(home);
  if (opened == cudaSuccess) memory = Memory(std::move(made));
  for (const int ordinal : accessible_from) {
    if (opened == cudaSuccess && ordinal != home) opened = opening.open_on(ordinal);
  }
  if (opened != cudaSuccess) {
    Error why = cuda_error(opened, "opening a CUDA IPC handle");
    why.message +=
        "; it must be cudaIpcGetMemHandle's of a living cudaMalloc allocation in a process on this "
        "node (containers must share the IPC namespace); memory of expandable segments or pools "
        "has no such handle";
    if (is_callers_mistake(opened)) {
      why.code = ErrorCode::InvalidArgument;
      why.reason = Reason::BadValue;
    }
    return why;
  }
  return check_found(opening.base(), handle.allocation_bytes, home);
}

}  // namespace

Status import_cuda_memory(const MemoryHandle& handle, int descriptor, int home,
                          std::span<const int> accessible_from, Memory& memory) {
  ARC_RETURN_IF_ERROR(check_range(handle));
  const CurrentCudaDevice current(home);
  switch (handle.kind) {
    case MemoryKind::PosixFd:
      return import_descriptor(handle, descriptor, home, accessible_from, memory);
    case MemoryKind::CudaIpc:
      return import_ipc(handle, home, accessible_from, memory);
    case MemoryKind::HostShm:
    case MemoryKind::Fabric:
      break;
  }
  return error(ErrorCode::Unimplemented, Reason::Unsupported,
               "memory of this kind cannot be imported by a GPU: offer a descriptor or an IPC "
               "handle");
}

Status import_cuda_chunks(std::span<const MemoryChunk> chunks, std::uint64_t offset_bytes,
                          std::uint64_t length_bytes, int home,
                          std::span<const int> accessible_from, Memory& memory) {
  const CurrentCudaDevice current(home);
  std::vector<CudaChunks::Piece> offered;
  offered.reserve(chunks.size());
  for (const MemoryChunk& chunk : chunks)
    offered.push_back({chunk.memory.get(), chunk.fabric, chunk.bytes});
  CudaChunks mapped;
  const Status imported = import_offered(offered, accessible_from, mapped);
  MemoryHandle range;
  range.kind = MemoryKind::PosixFd;
  range.offset_bytes = offset_bytes;
  range.length_bytes = length_bytes;
  range.allocation_bytes = mapped.view().bytes;
  const std::byte* base = mapped.view().data;
  if (base != nullptr) memory = Memory(std::make_unique<PartOfChunks>(std::move(mapped), range));
  ARC_RETURN_IF_ERROR(imported);
  ARC_RETURN_IF_ERROR(check_range(range));
  for (const MemoryChunk& chunk : chunks) {
    ARC_RETURN_IF_ERROR(check_found(base, chunk.bytes, home));
    base += chunk.bytes;
  }
  return {};
}

}  // namespace arcomm
