#include "client/cuda/cuda_mapping.h"

#include <utility>

#include "client/cuda/cuda_scope.h"

namespace arcomm::client {

Result<std::unique_ptr<GpuMapping>> ImportedMemory::create(const CudaDriver& api, CUcontext context,
                                                           CUdevice device, int fd,
                                                           std::uint64_t bytes) {
  const CudaChunks::Piece whole{.descriptor = fd, .bytes = bytes};
  CudaChunks memory;
  if (Status imported = memory.import(api, {&whole, 1}, {&device, 1}); !imported) {
    Error why = std::move(imported).error();
    why.message = "the daemon's GPU memory: " + why.message;
    return why;
  }
  return std::unique_ptr<GpuMapping>(new ImportedMemory(api, context, std::move(memory)));
}

ImportedMemory::ImportedMemory(const CudaDriver& api, CUcontext context, CudaChunks memory)
    : api_(api), context_(context), memory_(std::move(memory)) {
  address_ = memory_.view().data;
}

ImportedMemory::~ImportedMemory() {
  const CudaScope scope(api_, context_);
  memory_ = {};
}

Result<std::unique_ptr<GpuMapping>> HostMemoryOnGpu::create(const CudaDriver& api,
                                                            CUcontext context, void* memory,
                                                            std::size_t bytes) {
  CUresult done = api.cuMemHostRegister_(
      memory, bytes, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);
  if (done != CUDA_SUCCESS) {
    return api.failed(done,
                      "registering the daemon's doorbells with the GPU (is ulimit -l too low?)");
  }
  std::unique_ptr<HostMemoryOnGpu> mapping(new HostMemoryOnGpu(api, context, memory));
  CUdeviceptr address = 0;
  done = api.cuMemHostGetDevicePointer_(&address, memory, 0);
  if (done != CUDA_SUCCESS)
    return api.failed(done, "asking for the GPU's address of the doorbells");
  mapping->address_ = reinterpret_cast<void*>(address);
  return std::unique_ptr<GpuMapping>(std::move(mapping));
}

HostMemoryOnGpu::~HostMemoryOnGpu() {
  const CudaScope scope(api_, context_);
  api_.cuMemHostUnregister_(memory_);
}

}  // namespace arcomm::client
