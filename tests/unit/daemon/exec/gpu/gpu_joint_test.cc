// Operations that are launched for all ranks at once.
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

using GpuJoint = GpuWorkerTest;

TEST_F(GpuJoint, CopyEnginesServeWhatWasCalledAndNothingIsLaunchedAhead) {
  start_with("copy_engine");
  expect_serving(kLarge, 20);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::CopyEngine});
  EXPECT_EQ(node_.joint, 20);
  EXPECT_EQ(node_.prepared_used, 0);
}

TEST_F(GpuJoint, OperationThatCannotBeLaunchedEndsTheCommunicatorAndSaysWhy) {
  start_with("copy_engine");
  GpuRank& a = rank(0, kLarge * sizeof(float));
  GpuRank& b = rank(1, kLarge * sizeof(float));
  form({&a, &b});
  node_.joint_fails = true;
  for (GpuRank* one : {&a, &b}) one->start(plan(*one, kLarge), LaunchPath::Launched);
  for (GpuRank* one : {&a, &b}) expect_closed(*one, ErrorCode::Internal, Reason::None, kNoRank);
}

}  // namespace
}  // namespace arcomm::test
