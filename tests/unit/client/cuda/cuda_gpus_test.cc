// What the driver tells of MPS's limits, over a driver's table that is filled here: so it needs no
// GPU.
#include "client/cuda/cuda_gpus.h"

#include <gtest/gtest.h>

namespace arcomm::client {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): stands for CUDA's
unsigned sms_of_process = 0;  // 0: no MPS serves it

CudaDriver driver_with_affinity() {
  CudaDriver api;
  api.cuCtxGetCurrent_ = [](CUcontext* context) {
    *context = nullptr;
    return CUDA_SUCCESS;
  };
  api.cuThreadExchangeStreamCaptureMode_ = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  api.cuDeviceGetAttribute_ = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 132;
    return CUDA_SUCCESS;
  };
  api.cuCtxGetExecAffinity_ = [](CUexecAffinityParam* affinity, CUexecAffinityType) {
    affinity->param.smCount.val = sms_of_process;
    return sms_of_process != 0 ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  };
  return api;
}

bool has_part(unsigned sms) {
  sms_of_process = sms;
  return has_part_of_sms(driver_with_affinity(), nullptr, 0);
}

// Set by MPS's control, with nothing in the process's environment.
TEST(CudaGpusTest, ALimitOfMpsIsWhatTheDriverTells) {
  EXPECT_TRUE(has_part(66));
  EXPECT_FALSE(has_part(132));
  EXPECT_FALSE(has_part(0));
}

}  // namespace
}  // namespace arcomm::client
