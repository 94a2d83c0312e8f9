// Operations that the library launches by itself: client/src/gpu/gpu_member.h with an exchange.
#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/client/gpu/gpu_member_fixture.h"

namespace arcomm::client {
namespace {

class GpuInStreamTest : public GpuMemberTest {
 protected:
  GpuInStreamTest() {
    Result<std::unique_ptr<GpuExchange>> exchange = open(in_stream_exchange_bytes(2));
    EXPECT_TRUE(exchange.ok());
    make(std::move(*exchange));
    for (const GpuBuffer& buffer : {send, recv, elsewhere()})
      gpu->place(buffer.range.base, buffer.range.bytes, ++allocation_);
  }
  Result<std::unique_ptr<GpuExchange>> open(std::uint64_t bytes) {
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(memfd(1));
    for (int rank = 0; rank < 2; ++rank) descriptors.push_back(memfd(bytes));
    return GpuExchange::open(*gpu, descriptors, bytes, 500);
  }
  Status all_reduce(const CollectiveCall& call, void* stream = nullptr) {
    const Launch launch = member->launch_of(call);
    EXPECT_EQ(launch.path, LaunchPath::InStream);
    return member->all_reduce_in_stream(call, launch, 1000, stream, deadline());
  }
  Status all_reduce(std::uint64_t count, void* stream = nullptr) {
    return all_reduce(call(count), stream);
  }
  static Status check_unused(const GpuBuffer& buffer) {
    return InStreamUses::check_unused(reinterpret_cast<const void*>(buffer.range.base + 4096), 1);
  }
  GpuBuffer elsewhere() const {
    return {.range = {.base = send.range.base + (1ULL << 31), .bytes = 1 << 20}, .id = {3, 1}};
  }
  static CollectiveCall in_place(std::uintptr_t address, std::uint64_t count = 1) {
    return {all_reduce_of(count), reinterpret_cast<const std::byte*>(address),
            reinterpret_cast<std::byte*>(address)};
  }
  Status all_reduce_in(const GpuBuffer& buffer) { return all_reduce(in_place(buffer.range.base)); }

  std::uint64_t allocation_ = 0;
};

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

class GpuCodecTest : public GpuInStreamTest {
 protected:
  static LaunchTable with_codecs(std::uint32_t ranks = 2) {
    return LaunchTable::create(ranks,
                               {{.most_bytes = kMostInStream,
                                 .dtypes = bit_of(DType::Float32),
                                 .codecs = bit_of(Codec::None),
                                 .path = LaunchPath::InStream,
                                 .bytes_per_block = 4096,
                                 .most_blocks = 16},
                                {.most_bytes = 1 << 20,
                                 .dtypes = bit_of(DType::Float32),
                                 .ops = kInStreamCodecOps,
                                 .codecs = bit_of(Codec::Q6),
                                 .path = LaunchPath::InStream,
                                 .algorithm = coded_algorithm(ranks),
                                 .bytes_per_block = 16384,
                                 .most_blocks = 32},
                                {}},
                               {{.codec = Codec::Q4}, {.codec = Codec::Q6, .least_bytes = 1 << 18}})
        .value();
  }
  GpuCodecTest() {
    Result<std::unique_ptr<GpuExchange>> exchange = open(in_stream_exchange_bytes(2));
    EXPECT_TRUE(exchange.ok());
    make(std::move(*exchange), PostMode::Kernel, with_codecs());
  }
  CollectiveCall coded(std::uint64_t count, Codec codec = Codec::Q6) {
    CollectiveCall made = call(count);
    made.codec = codec;
    return made;
  }
  void expect_refused(const OperationSpec& what, Codec codec, const std::string& part) {
    const Status refused = member->check_codec(what, codec);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().reason, Reason::Unsupported);
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
};

TEST_F(GpuCodecTest, LoadsACodecsKernelsBeforeItsFirstLaunchAndTellsTheRanks) {
  EXPECT_TRUE(gpu->codecs.empty()) << "nobody has asked";
  ASSERT_TRUE(all_reduce(2048).ok());
  EXPECT_TRUE(gpu->codecs.empty());
  ASSERT_TRUE(all_reduce(coded(65536)).ok());
  ASSERT_EQ(gpu->codecs, std::vector{Codec::Q6});
  const FakeGpu::InStreamStart& start = gpu->in_stream_starts.back();
  EXPECT_EQ(start.shape.algorithm, InStreamAlgorithm::PairLl128);
  EXPECT_EQ(start.shape.blocks, 16u);
  EXPECT_EQ(start.call.codec(), Codec::Q6);
  EXPECT_EQ(start.call.op(), ReduceOp::Sum);
  EXPECT_EQ(gpu->in_stream_starts.front().call.codec(), Codec::None);
}

TEST_F(GpuCodecTest, LaunchesNothingWhoseKernelsDoNotLoad) {
  gpu->unloadable = Codec::Q6;
  const Status failed = all_reduce(coded(64));
  EXPECT_EQ(failed.error().reason, Reason::Version);
  EXPECT_TRUE(gpu->in_stream_starts.empty());
  EXPECT_TRUE(all_reduce(64).ok()) << "what asks for none goes on";
}

TEST_F(GpuCodecTest, LoadsADefaultCodecAhead) {
  ASSERT_TRUE(member->prepare_codec(Codec::None).ok());
  EXPECT_TRUE(gpu->codecs.empty());
  ASSERT_TRUE(member->prepare_codec(Codec::Q6).ok());
  EXPECT_EQ(gpu->codecs, std::vector{Codec::Q6});
  EXPECT_EQ(member->prepare_codec(Codec::Q4).error().reason, Reason::Unsupported);
}

TEST_F(GpuCodecTest, SaysWhyACodecIsNotServed) {
  EXPECT_TRUE(member->check_codec(call(64), Codec::Q6).ok());
  EXPECT_TRUE(member->check_codec(call(1 << 18), Codec::Q6).ok());
  expect_refused(call((1 << 18) + 1), Codec::Q6,
                 "codec q6 does not serve 1048580 bytes of float32 here, only up to 1048576");
  expect_refused(call(64), Codec::Q8, "the daemon's gpu.codecs is off, or its GPUs' stores");
  make(nullptr);
  expect_refused(call(64), Codec::Q6, "on GPUs codecs are in-stream, and nothing of it is");
  make_alone();
  expect_refused(call(64), Codec::Q6, "a rank alone on a GPU: ask for no codec");
}

TEST_F(GpuCodecTest, GivesAnErrorClassOnlyWhatIsServed) {
  const ErrorClass wanted{.least_snr_db = 20};
  EXPECT_EQ(member->codec_for(wanted, call(64)), Codec::None)
      << "q4 pays by the table, and no row serves it";
  const ErrorClass better{.least_snr_db = 30};
  EXPECT_EQ(member->codec_for(better, call(1 << 15)), Codec::None) << "it does not pay yet";
  EXPECT_EQ(member->codec_for(better, call(1 << 16)), Codec::Q6);
  EXPECT_EQ(member->codec_for(better, call((1 << 18) + 1)), Codec::None) << "too long";
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

// By which the daemon tells that ranks have called different operations on different paths.
class GpuCallNotesTest : public GpuInStreamTest {
 protected:
  static constexpr std::uint64_t kSmall = 16, kResident = kMostInStream / 4 + 1,
                                 kLarge = kMostResident / 4 + 1;
  std::optional<NotedCall> noted(LaunchPath path, std::uint32_t number) {
    const auto* const pages =
        reinterpret_cast<const HostPages*>(gpu->in_stream_starts[0].call.doorbells);
    return read_note(pages->called[static_cast<int>(path)][number % kCallNotes], number);
  }
  void expect_noted(LaunchPath path, std::uint32_t number, std::uint32_t call,
                    std::uint64_t count) {
    const std::optional<NotedCall> found = noted(path, number);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->call, call);
    EXPECT_EQ(found->spec, all_reduce_of(count));
  }
  void launch(std::uint64_t count) { ASSERT_TRUE(GpuMemberTest::all_reduce(count).ok()); }
};

TEST_F(GpuCallNotesTest, NumberOperationsByTheirPathAndOverAllPaths) {
  ASSERT_TRUE(all_reduce(kSmall).ok());
  launch(kLarge);
  launch(kResident);
  ASSERT_TRUE(all_reduce(0).ok());
  expect_noted(LaunchPath::InStream, 1, 1, kSmall);
  expect_noted(LaunchPath::Launched, 1, 2, kLarge);
  expect_noted(LaunchPath::Resident, 1, 3, kResident);
  expect_noted(LaunchPath::InStream, 2, 4, 0);
  EXPECT_FALSE(noted(LaunchPath::InStream, 3));
}

TEST_F(GpuCallNotesTest, TheLastOnesAreKept) {
  for (std::uint32_t i = 0; i < kCallNotes + 1; ++i) ASSERT_TRUE(all_reduce(kSmall).ok());
  EXPECT_FALSE(noted(LaunchPath::InStream, 1));
  expect_noted(LaunchPath::InStream, 2, 2, kSmall);
  expect_noted(LaunchPath::InStream, kCallNotes + 1, kCallNotes + 1, kSmall);
}

TEST_F(GpuCallNotesTest, ACallThatFailsTakesNoNumber) {
  ASSERT_TRUE(all_reduce(kSmall).ok());
  refusals.push_back(error(ErrorCode::InvalidArgument, Reason::BadValue, "no"));
  EXPECT_FALSE(GpuMemberTest::all_reduce(kLarge).ok());
  launch(kLarge);
  expect_noted(LaunchPath::Launched, 1, 2, kLarge);
}

// How often a graph is replayed, and when, nobody sees here.
TEST_F(GpuCallNotesTest, NothingIsSaidAnyMoreOnceAGraphHasCalls) {
  ASSERT_TRUE(all_reduce(kSmall).ok());
  ASSERT_TRUE(noted(LaunchPath::InStream, 1));
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(kSmall).ok());
  gpu->capturing = false;
  EXPECT_FALSE(noted(LaunchPath::InStream, 1));
  launch(kLarge);
  ASSERT_TRUE(all_reduce(kSmall).ok());
  EXPECT_FALSE(noted(LaunchPath::Launched, 1));
  EXPECT_FALSE(noted(LaunchPath::InStream, 2));
}

}  // namespace
}  // namespace arcomm::client
