// Which memory an in-stream operation may still touch: client/src/gpu/in_stream/in_stream_uses.h.
#include <gtest/gtest.h>

#include "tests/unit/client/gpu/gpu_in_stream_fixture.h"

namespace arcomm::client {
namespace {

TEST_F(GpuInStreamTest, SaysWhichMemoryAnOperationMayStillTouch) {
  EXPECT_TRUE(check_unused(send).ok()) << "nothing has used it";
  ASSERT_TRUE(all_reduce(16384).ok());
  const GpuBuffer other = elsewhere();
  ASSERT_TRUE(all_reduce_in(other).ok());
  for (const GpuBuffer& buffer : {send, recv, other})
    EXPECT_EQ(check_unused(buffer).error().code, ErrorCode::FailedPrecondition);
  FakeGpu::run(gpu->in_stream_starts[0]);
  EXPECT_TRUE(check_unused(send).ok());
  EXPECT_TRUE(check_unused(recv).ok());
  EXPECT_FALSE(check_unused(other).ok()) << "called later";
  FakeGpu::run(gpu->in_stream_starts[1]);
  EXPECT_TRUE(check_unused(other).ok());
}

// It reads its input before it looks whether it may go on.
TEST_F(GpuInStreamTest, RemembersWhatAnOperationTouchesWhenItsCommunicatorIsGone) {
  ASSERT_TRUE(all_reduce(1).ok());
  member.reset();
  EXPECT_FALSE(check_unused(send).ok());
  FakeGpu::run(gpu->in_stream_starts[0]);
  EXPECT_TRUE(check_unused(send).ok());
}

TEST_F(GpuInStreamTest, TakesAllMemoryForUsedWhileBlocksOfAFailedCommunicatorAreUnderWay) {
  ASSERT_TRUE(all_reduce(1).ok());
  ASSERT_TRUE(all_reduce_in(elsewhere()).ok());
  words->failed = to_word(Done{.code = static_cast<std::uint8_t>(ErrorCode::Aborted)});
  FakeGpu::run(gpu->in_stream_starts[1]);  // on another stream it did not wait
  EXPECT_FALSE(check_unused(send).ok());
  FakeGpu::run(gpu->in_stream_starts[0]);
  EXPECT_TRUE(check_unused(send).ok());
}

TEST_F(GpuInStreamTest, TakesMemoryForUsedWhileTheGpuDoesNotAnswer) {
  ASSERT_TRUE(all_reduce(1).ok());
  FakeGpu::run(gpu->in_stream_starts[0]);
  gpu->stuck = true;
  EXPECT_EQ(check_unused(recv).error().code, ErrorCode::FailedPrecondition);
  gpu->stuck = false;
}

TEST_F(GpuInStreamTest, SeesAReplayOnTheMemoryWhileItRuns) {
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok());
  EXPECT_TRUE(check_unused(send).ok()) << "no replay runs";
  InStreamBlock& block = gpu->in_stream_starts[0].call.exchange[0]->blocks[0];
  block.taken = 1;
  EXPECT_EQ(check_unused(send).error().code, ErrorCode::FailedPrecondition);
  EXPECT_TRUE(check_unused(elsewhere()).ok()) << "no graph uses it";
  block.ended = 1;
  EXPECT_TRUE(check_unused(send).ok());
}

TEST_F(GpuInStreamTest, GivesGraphsMemoryOfAFailedCommunicatorBack) {
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok());
  gpu->in_stream_starts[0].call.exchange[0]->blocks[0].taken = 2;  // and ended may stay behind
  member->close(Error{ErrorCode::Aborted, Reason::Revoked, "aborted", -1});
  EXPECT_TRUE(check_unused(send).ok());
}

}  // namespace
}  // namespace arcomm::client
