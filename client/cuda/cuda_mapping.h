// Memory made visible to one CUDA context, and hidden again by the destructor. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/cuda/cuda_api.h"
#include "client/cuda/gpu.h"

namespace arcomm::client {

// Another process's allocation, from its descriptor.
class ImportedMemory final : public GpuMapping {
 public:
  // The context is current.
  static Result<std::unique_ptr<GpuMapping>> create(const CudaApi& api, CUcontext context,
                                                    CUdevice device, int fd, std::uint64_t bytes);
  ~ImportedMemory() override;

 private:
  ImportedMemory(const CudaApi& api, CUcontext context, std::uint64_t bytes)
      : api_(api), context_(context), bytes_(bytes) {}

  const CudaApi& api_;
  CUcontext context_;
  const std::uint64_t bytes_;
  CUdeviceptr reserved_ = 0;
  bool is_mapped_ = false;
};

// Host memory of this process, pinned.
class HostMemoryOnGpu final : public GpuMapping {
 public:
  // The context is current.
  static Result<std::unique_ptr<GpuMapping>> create(const CudaApi& api, CUcontext context,
                                                    void* memory, std::size_t bytes);
  ~HostMemoryOnGpu() override;

 private:
  HostMemoryOnGpu(const CudaApi& api, CUcontext context, void* memory)
      : api_(api), context_(context), memory_(memory) {}

  const CudaApi& api_;
  CUcontext context_;
  void* const memory_;
};

}  // namespace arcomm::client
