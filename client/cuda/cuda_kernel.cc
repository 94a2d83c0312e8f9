#include "client/cuda/cuda_kernel.h"

#include <string>

#include "proto/gpu/early_launch.h"

namespace arcomm::client {

Result<CudaKernel> load_kernel(const CudaDriver& api, CUmodule module, const char* name) {
  CudaKernel kernel;
  CUresult done = api.cuModuleGetFunction_(&kernel.function, module, name);
  // Asking makes a lazy driver load it, before 12.4; from then on there is a call for that.
  int virtual_architecture = 0;
  if (done == CUDA_SUCCESS) {
    done = api.cuFuncGetAttribute_(&virtual_architecture, CU_FUNC_ATTRIBUTE_PTX_VERSION,
                                   kernel.function);
  }
  if (done == CUDA_SUCCESS && api.load_function != nullptr)
    done = api.load_function(kernel.function);
  if (done != CUDA_SUCCESS)
    return api.failed(done, (std::string("loading the kernel ") + name).c_str());
  int driver = 0;
  if (api.cuDriverGetVersion_(&driver) != CUDA_SUCCESS) driver = 0;
  kernel.waits_itself = may_launch_early(virtual_architecture, driver);
  return kernel;
}

CUresult launch(const CudaDriver& api, const CudaKernel& kernel, std::uint32_t blocks,
                std::uint32_t threads, void* stream, void* parameter) {
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{.gridDimX = blocks,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = threads,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .sharedMemBytes = 0,
                              .hStream = static_cast<CUstream>(stream),
                              .attrs = &early,
                              .numAttrs = kernel.waits_itself ? 1U : 0U};
  void* parameters[] = {parameter};
  return api.cuLaunchKernelEx_(&config, kernel.function, parameters, nullptr);
}

}  // namespace arcomm::client
