#include <cuda_runtime_api.h>

#include "kernels/device/cuda_error.cuh"
#include "kernels/launch/pinned_page.h"

namespace arcomm {

Result<PinnedPage> PinnedPage::create(std::uint64_t bytes) {
  void* base = nullptr;
  const cudaError_t made = cudaHostAlloc(&base, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (made != cudaSuccess) return device::cuda_error(made, "allocating pinned host memory");
  __builtin_memset(base, 0, bytes);
  return PinnedPage(base);
}

PinnedPage::~PinnedPage() {
  if (base_ != nullptr) cudaFreeHost(base_);
}

Status pin_host_memory(void* memory, std::uint64_t bytes) {
  const cudaError_t pinned =
      cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (pinned != cudaSuccess) return device::cuda_error(pinned, "pinning the host's memory");
  void* on_gpu = nullptr;
  const cudaError_t found = cudaHostGetDevicePointer(&on_gpu, memory, 0);
  if (found != cudaSuccess) return device::cuda_error(found, "finding pinned memory on the GPU");
  if (on_gpu == memory) return {};
  return error(ErrorCode::Unimplemented, Reason::Unsupported,
               "GPUs here find the host's memory by another address than the host does");
}

}  // namespace arcomm
