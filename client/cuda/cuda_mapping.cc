#include "client/cuda/cuda_mapping.h"

#include "client/cuda/cuda_scope.h"

namespace arcomm::client {

Result<std::unique_ptr<GpuMapping>> ImportedMemory::create(const CudaApi& api, CUcontext context,
                                                           CUdevice device, int fd,
                                                           std::uint64_t bytes) {
  CUmemGenericAllocationHandle memory = 0;
  CUresult done = api.cuMemImportFromShareableHandle_(
      &memory, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (done != CUDA_SUCCESS) return api.failed(done, "importing the daemon's GPU memory");
  // Gives back whatever part was made, should a step fail.
  std::unique_ptr<ImportedMemory> mapping(new ImportedMemory(api, context, bytes));
  done = api.cuMemAddressReserve_(&mapping->reserved_, bytes, 0, 0, 0);
  if (done == CUDA_SUCCESS) done = api.cuMemMap_(mapping->reserved_, bytes, 0, memory, 0);
  mapping->is_mapped_ = done == CUDA_SUCCESS;
  api.cuMemRelease_(memory);  // the mapping keeps the memory
  if (done != CUDA_SUCCESS) {
    Error why = api.failed(done, "mapping the daemon's GPU memory");
    why.message += " (" + std::to_string(bytes) + " bytes)";
    return why;
  }
  const CUmemAccessDesc access{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  done = api.cuMemSetAccess_(mapping->reserved_, bytes, &access, 1);
  if (done != CUDA_SUCCESS) return api.failed(done, "getting access to the daemon's GPU memory");
  mapping->address_ = reinterpret_cast<void*>(mapping->reserved_);
  return std::unique_ptr<GpuMapping>(std::move(mapping));
}

ImportedMemory::~ImportedMemory() {
  const CudaScope scope(api_, context_);
  if (is_mapped_) api_.cuMemUnmap_(reserved_, bytes_);
  if (reserved_ != 0) api_.cuMemAddressFree_(reserved_, bytes_);
}

Result<std::unique_ptr<GpuMapping>> HostMemoryOnGpu::create(const CudaApi& api, CUcontext context,
                                                            void* memory, std::size_t bytes) {
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
