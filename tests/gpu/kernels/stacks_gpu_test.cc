// What GPUs keep as stacks for the daemon's kernels: as much for every thread that fits on one at a
// time, so 64 bytes are 16 MiB of an H100.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "kernels/in_stream/kernels.h"
#include "kernels/launch/gated_launch.h"
#include "kernels/launch/launch_cuda.h"
#include "kernels/launch/stack_limit.h"
#include "kernels/network/launch_network.h"
#include "kernels/resident/grid.h"
#include "kernels/trial/flag_echo.h"
#include "kernels/trial/trial.h"

namespace arcomm {
namespace {

class GpuStacks : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    const Status given_back = give_back_stacks();
    ASSERT_TRUE(given_back) << given_back.error().to_string();
    ASSERT_EQ(bytes(), 0u);
  }
  // The other cases of this process find what they had.
  void TearDown() override {
    if (HasFatalFailure()) return;
    load_of_one_node();
    EXPECT_TRUE(load_network_kernels());
  }

  static std::size_t bytes() {
    std::size_t limit = 0;
    EXPECT_EQ(cudaDeviceGetLimit(&limit, cudaLimitStackSize), cudaSuccess);
    return limit;
  }
  static void load_of_one_node() {
    EXPECT_TRUE(load_all_reduce_kernels());
    EXPECT_TRUE(load_gate_kernel());
    EXPECT_TRUE(load_trial_kernels());
    EXPECT_TRUE(load_flag_echo_kernel());
    EXPECT_TRUE(InStreamKernels::load());
    EXPECT_TRUE(ResidentGrid::create(0));
  }
};

// Of machine code, as the build makes it. What a driver makes of PTX may need more, and gets it.
TEST_F(GpuStacks, KernelsOfOneNodeNeedNextToNone) {
  load_of_one_node();
  EXPECT_LE(bytes(), 64u);
}

TEST_F(GpuStacks, KernelsBetweenNodesFindRoomOnceTheyAreLoaded) {
  load_of_one_node();
  const std::size_t of_one_node = bytes();
  ASSERT_TRUE(load_network_kernels());
  const std::size_t room = bytes();
  EXPECT_GT(room, of_one_node);
  load_of_one_node();
  EXPECT_EQ(bytes(), room) << "who needs less leaves it";
}

}  // namespace
}  // namespace arcomm
