// Memory made visible to one CUDA context, and hidden again by the destructor. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/cuda/gpu.h"
#include "transport/device/cuda/cuda_chunks.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

// Another process's allocation, from its descriptor.
class ImportedMemory final : public GpuMapping {
 public:
  // The context is current.
  static Result<std::unique_ptr<GpuMapping>> create(const CudaDriver& api, CUcontext context,
                                                    CUdevice device, int fd, std::uint64_t bytes);
  ~ImportedMemory() override;

 private:
  ImportedMemory(const CudaDriver& api, CUcontext context, CudaChunks memory);

  const CudaDriver& api_;
  CUcontext context_;
  CudaChunks memory_;
};

// Host memory of this process, pinned.
class HostMemoryOnGpu final : public GpuMapping {
 public:
  // The context is current.
  static Result<std::unique_ptr<GpuMapping>> create(const CudaDriver& api, CUcontext context,
                                                    void* memory, std::size_t bytes);
  ~HostMemoryOnGpu() override;

 private:
  HostMemoryOnGpu(const CudaDriver& api, CUcontext context, void* memory)
      : api_(api), context_(context), memory_(memory) {}

  const CudaDriver& api_;
  CUcontext context_;
  void* const memory_;
};

}  // namespace arcomm::client
