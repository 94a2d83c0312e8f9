// Operations that copy engines carry.
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

using GpuJoint = GpuWorkerTest;

TEST_F(GpuJoint, CopyEnginesServeWhatWasCalledAndNothingIsLaunchedAhead) {
  start_with("copy_engine");
  expect_serving(kLarge, 20);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::CopyEngine});
  EXPECT_EQ(node_.by_copies, 20);
  EXPECT_EQ(node_.copies, 20 * 4);  // a part and a result from each rank
  EXPECT_EQ(node_.combined, 20 * 2);
  EXPECT_EQ(node_.prepared_used, 0);
}

TEST_F(GpuJoint, OperationThatCannotBeLaunchedEndsTheCommunicatorAndSaysWhy) {
  start_with("copy_engine");
  GpuRank& a = rank(0, kLarge * sizeof(float));
  GpuRank& b = rank(1, kLarge * sizeof(float));
  form({&a, &b});
  node_.copies_fail = true;
  for (GpuRank* one : {&a, &b}) one->start(plan(*one, kLarge), LaunchPath::Launched);
  for (GpuRank* one : {&a, &b}) expect_closed(*one, ErrorCode::Internal, Reason::None, kNoRank);
}

}  // namespace
}  // namespace arcomm::test
