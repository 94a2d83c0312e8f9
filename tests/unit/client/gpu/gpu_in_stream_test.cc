// Operations that the library launches by itself: client/src/gpu/gpu_member.h with an exchange.
#include <gtest/gtest.h>

#include "tests/unit/client/gpu/gpu_member_fixture.h"

namespace arcomm::client {
namespace {

class GpuInStreamTest : public GpuMemberTest {
 protected:
  GpuInStreamTest() {
    Result<std::unique_ptr<GpuExchange>> exchange = open(in_stream_exchange_bytes(2));
    EXPECT_TRUE(exchange.ok());
    make(std::move(*exchange));
  }
  Result<std::unique_ptr<GpuExchange>> open(std::uint64_t bytes) {
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(memfd(1));
    for (int rank = 0; rank < 2; ++rank) descriptors.push_back(memfd(bytes));
    return GpuExchange::open(*gpu, descriptors, bytes, {.atomic_128b_stores = true}, 500);
  }
  static Status check_unused(const GpuBuffer& buffer) {
    return InStreamUses::check_unused(reinterpret_cast<const void*>(buffer.range.base + 4096));
  }
  GpuBuffer elsewhere() const {
    return {.range = {.base = send.range.base + (1ULL << 31), .bytes = 1 << 20}, .id = {3, 1}};
  }
  Status all_reduce_in(const GpuBuffer& buffer) {
    CollectiveCall one = call(1);
    one.send = one.recv = reinterpret_cast<std::byte*>(buffer.range.base);
    return member->all_reduce(one, buffer, buffer, 1000, nullptr, deadline());
  }
};

TEST_F(GpuInStreamTest, LaunchesWhatIsSmallWithTheExchangesOfAll) {
  int stream = 0;
  ASSERT_TRUE(all_reduce(512, &stream).ok());
  EXPECT_TRUE(gpu->starts.empty());
  ASSERT_EQ(gpu->in_stream_starts.size(), 1u);
  const FakeGpu::InStreamStart& start = gpu->in_stream_starts[0];
  EXPECT_EQ(start.stream, &stream);
  EXPECT_EQ(start.shape.algorithm, InStreamAlgorithm::OneShotLl16);
  EXPECT_EQ(start.shape.blocks, 1u);
  EXPECT_EQ(start.call.send, call(512).send);
  EXPECT_EQ(start.call.recv, call(512).recv);
  EXPECT_EQ(start.call.count, 512u);
  EXPECT_EQ(start.call.ranks, 2u);
  EXPECT_EQ(start.call.timeout_ns, 500'000'000u) << "the daemon allows no longer one";
  EXPECT_NE(start.call.exchange[0], nullptr);
  EXPECT_NE(start.call.exchange[1], nullptr);
  EXPECT_NE(start.call.exchange[0], start.call.exchange[1]);
  EXPECT_EQ(asked.size(), 1u) << "the daemon has checked the buffers";
}

TEST_F(GpuInStreamTest, LaunchesNothingTooSoThatItMeetsTheOthers) {
  CollectiveCall nothing = call(0);
  ASSERT_TRUE(member->all_reduce(nothing, {}, {}, 1000, nullptr, deadline()).ok());
  nothing.send = nullptr;  // no address counts
  ASSERT_TRUE(member->all_reduce(nothing, {}, {}, 1000, nullptr, deadline()).ok());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].spec, all_reduce_of(0));
  EXPECT_FALSE(asked[0].send_buffer.valid() || asked[0].recv_buffer.valid());
  EXPECT_EQ(asked[0].send_offset_bytes, 0u);
  ASSERT_EQ(gpu->in_stream_starts.size(), 2u);
  const FakeGpu::InStreamStart& start = gpu->in_stream_starts[0];
  EXPECT_EQ(start.shape.algorithm, InStreamAlgorithm::OneShotLl16);
  EXPECT_EQ(start.shape.blocks, 1u);
  EXPECT_EQ(start.call.count, 0u);
  EXPECT_EQ(start.call.send, nullptr);
  EXPECT_TRUE(check_unused(send).ok() && check_unused(recv).ok()) << "it touches none";
}

TEST_F(GpuInStreamTest, LeavesOtherTypesAndSizesToTheDaemon) {
  CollectiveCall integers = call(64);
  integers.dtype = DType::Int32;
  ASSERT_TRUE(member->all_reduce(integers, send, recv, 1000, nullptr, deadline()).ok());
  ASSERT_TRUE(all_reduce((4 << 20) + 1).ok());
  EXPECT_EQ(gpu->starts.size(), 2u);
  EXPECT_TRUE(gpu->in_stream_starts.empty());
}

TEST_F(GpuInStreamTest, KeepsTheOrderOfTheCallsOverSeveralStreams) {
  int first = 0, second = 0;
  ASSERT_TRUE(all_reduce(16384, &first).ok() && all_reduce(1, &first).ok());
  EXPECT_FALSE(gpu->in_stream_starts[1].waits_behind) << "its stream has an order already";
  ASSERT_TRUE(all_reduce(1, &second).ok());
  EXPECT_TRUE(gpu->in_stream_starts[2].waits_behind);
  EXPECT_EQ(gpu->in_stream_starts[2].call.behind, gpu->in_stream_starts[0].shape.blocks + 1);
}

TEST_F(GpuInStreamTest, TakesTheStreamOfEachThreadForSeveral) {
  void* const per_thread = reinterpret_cast<void*>(2);
  ASSERT_TRUE(all_reduce(1, per_thread).ok() && all_reduce(1, per_thread).ok());
  EXPECT_TRUE(gpu->in_stream_starts[0].waits_behind);
  EXPECT_EQ(gpu->in_stream_starts[0].call.behind, 0u);
  EXPECT_TRUE(gpu->in_stream_starts[1].waits_behind);
  EXPECT_EQ(gpu->in_stream_starts[1].call.behind, 1u);
}

TEST_F(GpuInStreamTest, LetsAGraphsStartsComeAsTheyAreReplayed) {
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok());
  EXPECT_EQ(gpu->in_stream_starts[0].call.left, nullptr);
  EXPECT_FALSE(gpu->in_stream_starts[0].waits_behind);
}

TEST_F(GpuInStreamTest, GivesUpItsPlansWhetherTheyRunOrNot) {
  ASSERT_TRUE(all_reduce(1).ok());
  refusals = {Error{ErrorCode::ResourceExhausted, Reason::Quota, "no plan is left", -1}};
  EXPECT_TRUE(all_reduce(2).ok());
  EXPECT_EQ(destroyed.size(), 1u);
}

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

TEST_F(GpuInStreamTest, RemembersWhatAnOperationTouchesWhenItsPlanIsGone) {
  ASSERT_TRUE(all_reduce(1).ok());
  ASSERT_TRUE(member->drop_plans(deadline()).ok());
  EXPECT_FALSE(check_unused(send).ok());
  FakeGpu::run(gpu->in_stream_starts[0]);
  EXPECT_TRUE(check_unused(send).ok());
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

TEST_F(GpuInStreamTest, UnmapsTheExchangesOnceEveryBlockHasLeft) {
  ASSERT_TRUE(all_reduce(16384).ok());
  FakeGpu::run(gpu->in_stream_starts[0]);
  member.reset();
  EXPECT_EQ(gpu->open_mappings, 0);
}

TEST_F(GpuInStreamTest, LeavesTheExchangesMappedWhileABlockMayStillCome) {
  ASSERT_TRUE(all_reduce(16384).ok());
  notes->in_stream_left = gpu->in_stream_starts[0].shape.blocks - 1;
  member.reset();
  EXPECT_EQ(gpu->open_mappings, 4);
}

TEST_F(GpuInStreamTest, RefusesADaemonWhoseExchangesAreTooSmall) {
  const auto opened = open(in_stream_exchange_bytes(2) - 4096);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().reason, Reason::Version);
}

}  // namespace
}  // namespace arcomm::client
