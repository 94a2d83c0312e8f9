// Operations that the library launches by itself: client/src/gpu/gpu_member.h with an exchange.
#include <gtest/gtest.h>

#include "tests/unit/client/gpu/gpu_in_stream_fixture.h"

namespace arcomm::client {
namespace {

TEST_F(GpuInStreamTest, LaunchesAsTheTableSaysWithTheExchangesOfAll) {
  int stream = 0;
  ASSERT_TRUE(all_reduce(2048, &stream).ok());
  EXPECT_TRUE(gpu->starts.empty());
  ASSERT_EQ(gpu->in_stream_starts.size(), 1u);
  const FakeGpu::InStreamStart& start = gpu->in_stream_starts[0];
  EXPECT_EQ(start.stream, &stream);
  EXPECT_EQ(start.shape.algorithm, InStreamAlgorithm::OneShotLl16);
  EXPECT_EQ(start.shape.blocks, 2u);
  EXPECT_EQ(start.call.send, call(2048).send);
  EXPECT_EQ(start.call.recv, call(2048).recv);
  EXPECT_EQ(start.call.count, 2048u);
  EXPECT_EQ(start.call.ranks, 2u);
  EXPECT_EQ(start.call.timeout_ns, 500'000'000u) << "the daemon allows no longer one";
  EXPECT_NE(start.call.exchange[0], nullptr);
  EXPECT_NE(start.call.exchange[1], nullptr);
  EXPECT_NE(start.call.exchange[0], start.call.exchange[1]);
}

TEST_F(GpuInStreamTest, AsksTheDaemonForNothing) {
  for (std::uint64_t count = 1; count <= 100; ++count) ASSERT_TRUE(all_reduce(count).ok());
  EXPECT_TRUE(asked.empty());
  EXPECT_TRUE(destroyed.empty());
}

TEST_F(GpuInStreamTest, AsksCudaOnceForAnAllocationWhateverPointersFollow) {
  ASSERT_TRUE(all_reduce(1).ok());
  EXPECT_EQ(gpu->questions, 2);
  for (std::uintptr_t offset = 256; offset < 1 << 20; offset += 256)
    ASSERT_TRUE(all_reduce(in_place(send.range.base + offset)).ok());
  EXPECT_EQ(gpu->questions, 2);
}

// Pools of cudaMallocAsync map what no other process could be given.
TEST_F(GpuInStreamTest, TakesMemoryThatCannotBeShared) {
  const std::uintptr_t base = elsewhere().range.base + (1 << 24);
  gpu->map(base, 1 << 20, 77);
  gpu->map(base + (1 << 20), 1 << 20, 78);
  gpu->unshared = 77;
  EXPECT_TRUE(all_reduce(in_place(base)).ok());
  EXPECT_TRUE(all_reduce(in_place(base + (1 << 20) - 16, 8)).ok()) << "across two mappings";
  EXPECT_EQ(all_reduce(in_place(base + (2 << 20) - 16, 8)).error().reason, Reason::OutOfBounds);
}

TEST_F(GpuInStreamTest, RefusesMemoryThatIsNotItsGpus) {
  const Status host = all_reduce(in_place(0x1000));
  EXPECT_EQ(host.error().code, ErrorCode::InvalidArgument);
  const std::uintptr_t other = elsewhere().range.base + (1 << 24);
  gpu->place(other, 1 << 20, 91, 1);
  const Status of_another = all_reduce(in_place(other));
  EXPECT_EQ(of_another.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(of_another.error().message.find("memory of GPU 1"), std::string::npos)
      << of_another.error().message;
  const Status too_long = all_reduce(in_place(elsewhere().range.base + (1 << 20) - 16, 8));
  EXPECT_EQ(too_long.error().reason, Reason::OutOfBounds);
  EXPECT_TRUE(gpu->in_stream_starts.empty());
}

TEST_F(GpuInStreamTest, MeetsTheOthersWithNoElementsAndNoMemory) {
  ASSERT_TRUE(all_reduce(CollectiveCall{}).ok());
  ASSERT_EQ(gpu->in_stream_starts.size(), 1u);
  EXPECT_EQ(gpu->in_stream_starts[0].shape.blocks, 1u);
  EXPECT_EQ(gpu->in_stream_starts[0].call.count, 0u);
  EXPECT_EQ(gpu->questions, 0);
  EXPECT_TRUE(asked.empty());
  ASSERT_TRUE(all_reduce(0).ok()) << "no address counts";
  EXPECT_EQ(gpu->questions, 0);
  EXPECT_TRUE(check_unused(send).ok() && check_unused(recv).ok()) << "it touches none";
}

TEST_F(GpuInStreamTest, LeavesOtherTypesAndSizesToTheDaemon) {
  CollectiveCall integers = call(64);
  integers.dtype = DType::Int32;
  EXPECT_EQ(member->launch_of(integers).path, LaunchPath::Resident);
  EXPECT_EQ(member->launch_of(call(kMostInStream / 4)).path, LaunchPath::InStream);
  EXPECT_EQ(member->launch_of(call(kMostInStream / 4 + 1)).path, LaunchPath::Resident);
  EXPECT_EQ(member->launch_of(call(kMostResident / 4 + 1)).path, LaunchPath::Launched);
}

TEST_F(GpuInStreamTest, AsksAgainAboutMemoryThatWasGivenBack) {
  ASSERT_TRUE(all_reduce(1).ok());
  FakeGpu::run(gpu->in_stream_starts[0]);
  InStreamUses::forget_memory(reinterpret_cast<const void*>(send.range.base), 1 << 20);
  gpu->place(send.range.base, 0, 0);
  EXPECT_EQ(all_reduce(1).error().code, ErrorCode::InvalidArgument);
}

// A stale entry in the middle of what came to lie there must not hide the rest.
TEST_F(GpuInStreamTest, SeesAUseAcrossAllocationsThatFollowedOneAnother) {
  const std::uintptr_t base = elsewhere().range.base + (1 << 24);
  gpu->place(base + 4096, 4096, 81);
  ASSERT_TRUE(all_reduce(in_place(base + 4096)).ok());
  FakeGpu::run(gpu->in_stream_starts[0]);
  gpu->place(base + 4096, 0, 0);
  gpu->place(base, 1 << 20, 82);
  ASSERT_TRUE(all_reduce(in_place(base + 4096)).ok()) << "known, as far as it goes";
  const auto* whole = reinterpret_cast<const void*>(base);
  EXPECT_FALSE(InStreamUses::check_unused(whole, 1 << 20).ok());
  ASSERT_TRUE(all_reduce(in_place(base)).ok());
  FakeGpu::run(gpu->in_stream_starts[1]);
  EXPECT_FALSE(InStreamUses::check_unused(whole, 1 << 20).ok());
  FakeGpu::run(gpu->in_stream_starts[2]);
  EXPECT_TRUE(InStreamUses::check_unused(whole, 1 << 20).ok());
}

// A pool hands out thousands of addresses, and each is an allocation.
TEST_F(GpuInStreamTest, ForgetsMemoryThatNoOperationTouchesAnyMore) {
  const std::uintptr_t base = elsewhere().range.base + (1 << 24);
  constexpr int kMany = 10'000;
  for (int i = 0; i < kMany; ++i) {
    gpu->place(base + static_cast<std::uintptr_t>(i) * 4096, 512, 100 + i);
    ASSERT_TRUE(all_reduce(in_place(base + static_cast<std::uintptr_t>(i) * 4096)).ok());
    if (i != kMany - 1) FakeGpu::run(gpu->in_stream_starts.back());
  }
  const auto of = [&](int i) {
    return reinterpret_cast<const void*>(base + static_cast<std::uintptr_t>(i) * 4096);
  };
  EXPECT_TRUE(InStreamUses::check_unused(of(0), 1).ok());
  EXPECT_FALSE(InStreamUses::check_unused(of(kMany - 1), 1).ok());
  const int before = gpu->questions;
  ASSERT_TRUE(all_reduce(in_place(base)).ok());
  EXPECT_EQ(gpu->questions, before + 1) << "it was forgotten";
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

// Else two graphs of one shape, replayed in another order on each rank, are mixed in silence.
TEST_F(GpuInStreamTest, NumbersWhatGraphsHoldInTheOrderOfCapture) {
  ASSERT_TRUE(all_reduce(1).ok());
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok() && all_reduce(1).ok());
  gpu->capturing = false;
  ASSERT_TRUE(all_reduce(1).ok());
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(1).ok());
  std::vector<std::uint32_t> identities;
  for (const auto& start : gpu->in_stream_starts) identities.push_back(start.call.identity());
  EXPECT_EQ(identities, (std::vector<std::uint32_t>{kNoIdentity, 1, 2, kNoIdentity, 3}));
}

TEST(Trigger, IsOneOfTwoWords) {
  ::setenv("ARCOMM_TRIGGER", "late", 1);
  EXPECT_EQ(*trigger_from_environment(), Trigger::Late);
  ::setenv("ARCOMM_TRIGGER", "later", 1);
  const Result<Trigger> refused = trigger_from_environment();
  ::unsetenv("ARCOMM_TRIGGER");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "ARCOMM_TRIGGER is \"later\": early or late expected");
  EXPECT_EQ(*trigger_from_environment(), Trigger::Early);
}

TEST_F(GpuInStreamTest, TellsTheKernelWhenToLetTheNextBegin) {
  ASSERT_TRUE(all_reduce(1).ok());
  EXPECT_EQ(gpu->in_stream_starts[0].call.triggers_late, 0u);
  trigger = Trigger::Late;
  Result<std::unique_ptr<GpuExchange>> exchange = open(in_stream_exchange_bytes(2));
  ASSERT_TRUE(exchange.ok());
  make(std::move(*exchange));
  ASSERT_TRUE(all_reduce(1).ok());
  EXPECT_EQ(gpu->in_stream_starts[1].call.triggers_late, 1u);
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
