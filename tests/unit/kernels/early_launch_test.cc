// How launched kernels ask for an early launch, over a CUDA runtime that is defined here and notes
// what it is told: so it needs no GPU.
#include <gtest/gtest.h>

#include "kernels/device/launching.cuh"

namespace {

struct Runtime {
  int ptx_version = 90;
  int driver_version = 13'000;
  cudaError_t loads = cudaSuccess;
  unsigned launches = 0;
  bool early = false;  // the last one
  std::uint64_t count = 0;
  unsigned more = 0;
  dim3 blocks, threads;
};
Runtime runtime;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): stands for CUDA's

}  // namespace

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = runtime.ptx_version;
  attributes->binaryVersion = 100;  // whatever the GPU is
  return runtime.loads;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = runtime.driver_version;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void** arguments) {
  ++runtime.launches;
  runtime.early = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    runtime.early |= config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization;
  }
  runtime.blocks = config->gridDim;
  runtime.threads = config->blockDim;
  runtime.count = static_cast<arcomm::CudaAllReduce*>(arguments[0])->count;
  runtime.more = *static_cast<unsigned*>(arguments[1]);
  return cudaSuccess;
}

}  // extern "C"

namespace arcomm::device {
namespace {

void kernel(CudaAllReduce, unsigned) {}

class EarlyLaunch : public testing::Test {
 protected:
  void SetUp() override { runtime = {}; }

  static cudaError_t launch_one(bool gated) {
    CudaAllReduce call;
    call.count = 17;
    call.gated = gated;
    return launch(kernel, call, {.blocks = 3, .threads = 64}, nullptr, 5U);
  }
};

TEST_F(EarlyLaunch, AGatedKernelOfHoppersCodeIsLaunchedEarly) {
  ASSERT_EQ(launch_one(true), cudaSuccess);
  EXPECT_TRUE(runtime.early);
}

// A GPU after Hopper runs what its driver made of PTX for 8.0, in which nothing waits.
TEST_F(EarlyLaunch, AGatedKernelOfOlderPtxIsLaunchedInOrderWhateverTheGpuIs) {
  runtime.ptx_version = 80;
  ASSERT_EQ(launch_one(true), cudaSuccess);
  EXPECT_EQ(runtime.launches, 1U);
  EXPECT_FALSE(runtime.early);
}

TEST_F(EarlyLaunch, ADriverWhoseGraphsHaveNoEarlyLaunchesGetsNone) {
  runtime.driver_version = 12'020;
  ASSERT_EQ(launch_one(true), cudaSuccess);
  EXPECT_FALSE(runtime.early);
}

TEST_F(EarlyLaunch, AKernelWithoutAGateIsLaunchedInOrder) {
  ASSERT_EQ(launch_one(false), cudaSuccess);
  EXPECT_FALSE(runtime.early);
}

TEST_F(EarlyLaunch, AKernelThatCannotBeAskedIsNotLaunched) {
  runtime.loads = cudaErrorInvalidDeviceFunction;
  EXPECT_EQ(launch_one(true), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(runtime.launches, 0U);
}

TEST_F(EarlyLaunch, AKernelGetsItsArgumentsAndItsShape) {
  ASSERT_EQ(launch_one(true), cudaSuccess);
  EXPECT_EQ(runtime.count, 17U);
  EXPECT_EQ(runtime.more, 5U);
  EXPECT_EQ(runtime.blocks.x, 3U);
  EXPECT_EQ(runtime.threads.x, 64U);
}

TEST_F(EarlyLaunch, AnInStreamKernelIsAskedAsAGatedOneIs) {
  bool early = false;
  ASSERT_EQ(ask_for_early_launch(nullptr, early), cudaSuccess);
  EXPECT_TRUE(early);
  runtime.ptx_version = 80;
  ASSERT_EQ(ask_for_early_launch(nullptr, early), cudaSuccess);
  EXPECT_FALSE(early);
}

}  // namespace
}  // namespace arcomm::device
