// The only rank of a communicator: client/src/gpu/in_stream/in_stream_path.h without an exchange.
#include <gtest/gtest.h>

#include "tests/unit/client/gpu/gpu_member_fixture.h"

namespace arcomm::client {
namespace {

class GpuAloneTest : public GpuMemberTest {
 protected:
  GpuAloneTest() {
    make_alone();
    for (const GpuBuffer& buffer : {send, recv})
      gpu->map(buffer.range.base, buffer.range.bytes, buffer.range.base);  // as pools do
    gpu->unshared = send.range.base;
  }
  Status all_reduce(const CollectiveCall& call, void* stream = nullptr) {
    const Launch launch = member->launch_of(call);
    EXPECT_EQ(launch.path, LaunchPath::Alone);
    EXPECT_FALSE(launch.needs_daemon());
    return member->all_reduce_in_stream(call, launch, 1000, stream, deadline());
  }
  static Status check_unused(const GpuBuffer& buffer) {
    return InStreamUses::check_unused(reinterpret_cast<const void*>(buffer.range.base), 1);
  }
};

TEST_F(GpuAloneTest, CopiesWithinAnyMemoryOfItsGpuAndAsksTheDaemonForNothing) {
  int stream = 0;
  for (const std::uint64_t count : {1ULL, 1ULL << 20, 1ULL << 27}) {
    CollectiveCall one = call(count);
    one.dtype = DType::Float16;
    ASSERT_TRUE(all_reduce(one, &stream).ok()) << count;
    const FakeGpu::Copy& copy = gpu->copies.back();
    EXPECT_EQ(copy.to, one.recv);
    EXPECT_EQ(copy.from, one.send);
    EXPECT_EQ(copy.bytes, one.send_bytes());
    EXPECT_EQ(copy.stream, &stream);
  }
  EXPECT_TRUE(asked.empty() && gpu->starts.empty() && gpu->in_stream_starts.empty());
  EXPECT_EQ(gpu->questions, 2) << "CUDA is asked once for each";
}

TEST_F(GpuAloneTest, MovesNothingInPlaceOrOfNoElementsButLooksAtTheMemory) {
  CollectiveCall in_place = call(64);
  in_place.recv = const_cast<std::byte*>(in_place.send);
  EXPECT_TRUE(all_reduce(in_place).ok());
  EXPECT_TRUE(all_reduce(call(0)).ok());
  EXPECT_TRUE(gpu->copies.empty());
  in_place.send = in_place.recv = reinterpret_cast<std::byte*>(0x1000);
  EXPECT_EQ(all_reduce(in_place).error().code, ErrorCode::InvalidArgument);
}

TEST_F(GpuAloneTest, KeepsMemoryThatACopyMayStillTouch) {
  ASSERT_TRUE(all_reduce(call(64)).ok());
  EXPECT_FALSE(check_unused(send).ok());
  EXPECT_FALSE(check_unused(recv).ok());
  ++*gpu->copies[0].left;  // it has ended
  EXPECT_TRUE(check_unused(send).ok() && check_unused(recv).ok());
}

TEST_F(GpuAloneTest, IsCapturedUncounted) {
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(call(64)).ok());
  ASSERT_EQ(gpu->copies.size(), 1u);
  EXPECT_EQ(gpu->copies[0].left, nullptr);
}

TEST_F(GpuAloneTest, EndsWithItsCommunicator) {
  member->close(error(ErrorCode::Aborted, Reason::DaemonLost, "the daemon is gone"));
  EXPECT_EQ(all_reduce(call(64)).error().reason, Reason::DaemonLost);
  EXPECT_TRUE(gpu->copies.empty());
}

}  // namespace
}  // namespace arcomm::client
