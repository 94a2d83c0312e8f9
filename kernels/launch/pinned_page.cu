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

}  // namespace arcomm
