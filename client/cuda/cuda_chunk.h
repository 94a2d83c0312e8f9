// A piece of physical memory behind this process's addresses, as PyTorch's expandable segments map
// them: a reference to it is held, so that the driver's handle names this memory and no other.
// Thread: any; the context is current, and CUDA's capture checks are off (CudaScope).
#pragma once

#include <memory>

#include "client/cuda/gpu.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

class CudaChunk final : public GpuChunk {
 public:
  static Result<std::unique_ptr<GpuChunk>> hold(const CudaDriver& api, CUcontext context,
                                                const void* address);
  ~CudaChunk() override;

  bool is_in_place() const;
  Result<MemoryChunk> share() const;

 private:
  CudaChunk(const CudaDriver& api, CUcontext context, CUmemGenericAllocationHandle handle,
            std::uintptr_t base, std::uint64_t bytes)
      : GpuChunk(base, bytes), api_(api), context_(context), handle_(handle) {}
  Error not_shared(CUresult as_descriptor, CUresult as_fabric) const;

  const CudaDriver& api_;
  CUcontext context_;
  const CUmemGenericAllocationHandle handle_;
};

}  // namespace arcomm::client
