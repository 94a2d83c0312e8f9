#include "client/cuda/cuda_chunk.h"

#include <fcntl.h>

#include <cerrno>
#include <string>

#include "client/cuda/cuda_scope.h"

namespace arcomm::client {
namespace {

std::string names_of(unsigned long long handle_types) {
  std::string names;
  if ((handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) names += " a descriptor";
  if ((handle_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0) names += " a fabric handle";
  return names.empty() ? " no handle at all" : names;
}

// CUDA has no code of its own for it.
bool has_descriptors_left() {
  const UniqueFd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return one || (errno != EMFILE && errno != ENFILE);
}

}  // namespace

Result<std::unique_ptr<GpuChunk>> CudaChunk::hold(const CudaDriver& api, CUcontext context,
                                                  const void* address) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  CUresult done = api.cuMemGetAddressRange_(&base, &bytes, reinterpret_cast<CUdeviceptr>(address));
  CUmemGenericAllocationHandle handle = 0;
  if (done == CUDA_SUCCESS)
    done = api.cuMemRetainAllocationHandle_(&handle, reinterpret_cast<void*>(base));
  if (done == CUDA_SUCCESS)
    return std::unique_ptr<GpuChunk>(new CudaChunk(api, context, handle, base, bytes));
  return error(ErrorCode::FailedPrecondition, Reason::Unsupported, address,
               " is neither memory of cudaMalloc nor of cuMemCreate (", api.name_of(done),
               "), and no other process can reach it: use one of these or arcMemAlloc; with "
               "PyTorch set PYTORCH_CUDA_ALLOC_CONF=backend:native");
}

CudaChunk::~CudaChunk() {
  const CudaScope scope(api_, context_);
  api_.cuMemRelease_(handle_);
}

// The driver gives the handle that the memory was mapped with, and while we hold a reference no
// other memory gets the same one.
bool CudaChunk::is_in_place() const {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  if (api_.cuMemGetAddressRange_(&base, &bytes, this->base()) != CUDA_SUCCESS) return false;
  if (base != this->base() || bytes != this->bytes()) return false;
  CUmemGenericAllocationHandle now = 0;
  if (api_.cuMemRetainAllocationHandle_(&now, reinterpret_cast<void*>(base)) != CUDA_SUCCESS)
    return false;
  api_.cuMemRelease_(now);
  return now == handle_;
}

Result<MemoryChunk> CudaChunk::share() const {
  MemoryChunk out{.memory = {}, .bytes = bytes()};
  int fd = -1;
  const CUresult as_descriptor =
      api_.cuMemExportToShareableHandle_(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (as_descriptor == CUDA_SUCCESS) {
    out.memory = UniqueFd(fd);
    return out;
  }
  static_assert(sizeof(CUmemFabricHandle) == kFabricHandleBytes);
  const CUresult as_fabric =
      api_.cuMemExportToShareableHandle_(out.fabric.data(), handle_, CU_MEM_HANDLE_TYPE_FABRIC, 0);
  if (as_fabric == CUDA_SUCCESS) return out;
  return not_shared(as_descriptor, as_fabric);
}

Error CudaChunk::not_shared(CUresult as_descriptor, CUresult as_fabric) const {
  if (!has_descriptors_left()) {
    return error(
        ErrorCode::ResourceExhausted, Reason::OutOfMemory,
        "no descriptor is left in this process, or on this node, for the memory mapped at ",
        reinterpret_cast<void*>(base()), " (", bytes(), " bytes of cuMemCreate; ",
        api_.name_of(as_descriptor), "): raise ulimit -n, or fs.file-max");
  }
  CUmemAllocationProp made{};
  const CUresult asked = api_.cuMemGetAllocationPropertiesFromHandle_(&made, handle_);
  return error(
      ErrorCode::FailedPrecondition, Reason::Unsupported, "the memory mapped at ",
      reinterpret_cast<void*>(base()), " (", bytes(),
      " bytes of cuMemCreate) cannot be shared with the daemon: it was made to have",
      asked == CUDA_SUCCESS ? names_of(made.requestedHandleTypes) : " handles of unknown types",
      " (as a descriptor: ", api_.name_of(as_descriptor),
      ", as a fabric handle: ", api_.name_of(as_fabric),
      "). PyTorch's expandable segments can be shared when TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1 is "
      "in the environment before the process allocates; or set "
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False, or take the memory from arcMemAlloc");
}

}  // namespace arcomm::client
