// How the client's kernels ask for an early launch, over a driver's table that is filled here: so
// it needs no GPU.
#include "client/cuda/cuda_kernel.h"

#include <gtest/gtest.h>

namespace arcomm::client {
namespace {

struct Loaded {
  int ptx_version = 90;
  int driver_version = 12'080;
  unsigned attributes = 0;  // of the last launch
};
Loaded loaded;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): stands for CUDA's

CudaDriver driver_that_launches() {
  CudaDriver api;
  api.cuModuleGetFunction_ = [](CUfunction* function, CUmodule, const char*) {
    *function = nullptr;
    return CUDA_SUCCESS;
  };
  api.cuFuncGetAttribute_ = [](int* value, CUfunction_attribute attribute, CUfunction) {
    *value = attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION ? loaded.ptx_version : 100;
    return CUDA_SUCCESS;
  };
  api.cuDriverGetVersion_ = [](int* version) {
    *version = loaded.driver_version;
    return CUDA_SUCCESS;
  };
  api.cuLaunchKernelEx_ = [](const CUlaunchConfig* config, CUfunction, void**, void**) {
    loaded.attributes = config->numAttrs;
    return CUDA_SUCCESS;
  };
  return api;
}

unsigned attributes_of_a_launch(Loaded of) {
  loaded = of;
  const CudaDriver api = driver_that_launches();
  const Result<CudaKernel> kernel = load_kernel(api, nullptr, "kernel");
  EXPECT_TRUE(kernel);
  int parameter = 0;
  EXPECT_EQ(launch(api, *kernel, 1, 32, nullptr, &parameter), CUDA_SUCCESS);
  return loaded.attributes;
}

TEST(CudaKernel, OfHoppersCodeIsLaunchedEarly) {
  EXPECT_EQ(attributes_of_a_launch({.ptx_version = 90}), 1U);
}

TEST(CudaKernel, OfOlderPtxIsLaunchedInOrderWhateverTheGpuIs) {
  EXPECT_EQ(attributes_of_a_launch({.ptx_version = 80}), 0U);
}

TEST(CudaKernel, IsLaunchedInOrderByADriverThatCannotCaptureEarlyLaunches) {
  EXPECT_EQ(attributes_of_a_launch({.driver_version = 12'020}), 0U);
}

}  // namespace
}  // namespace arcomm::client
