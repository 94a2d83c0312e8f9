// Memory that is mapped in chunks, through the table that callers use.
#include "client/src/gpu/memory/gpu_segments.h"

#include <gtest/gtest.h>

#include "client/src/gpu/gpu_all_reduce.h"
#include "client/src/gpu/memory/gpu_allocations.h"
#include "client/src/gpu/memory/gpu_buffers.h"
#include "tests/unit/client/gpu/fake_gpu.h"

namespace arcomm::client {
namespace {

constexpr std::uint64_t kChunk = 20 << 20;
constexpr std::uintptr_t kSegment = 0x7e0000000000;

const void* in_segment(std::uint64_t offset) {
  return reinterpret_cast<const void*>(kSegment + offset);
}

class GpuSegmentsTest : public testing::Test {
 public:
  GpuSegmentsTest() {
    for (std::uint64_t i = 0; i < 6; ++i) gpu.map(kSegment + i * kChunk, kChunk, 1 + i);
  }

  Result<GpuBuffer> find(std::uint64_t offset, std::uint64_t bytes) {
    return buffers.find(gpu, in_segment(offset), bytes, deadline());
  }
  static Deadline deadline() { return Deadline::after(std::chrono::seconds(1)); }

  Result<BufferId> add(Gpu& on, const GpuChunks& chunks) {
    for (const std::unique_ptr<GpuChunk>& chunk : chunks) {
      const Result<MemoryChunk> exported = on.export_chunk(*chunk);
      if (!exported) return exported.error();
    }
    if (refuses || told.size() - removed.size() >= room)
      return error(ErrorCode::ResourceExhausted, Reason::Quota, "enough");
    told.push_back(chunks.size());
    return BufferId{next++, 1};
  }
  Status remove(BufferId id) {
    removed.push_back(id);
    return {};
  }

  FakeGpu gpu, other_gpu;  // both outlive the buffers, which hold chunks of theirs
  std::uint32_t next = 1;
  std::vector<std::size_t> told;  // chunks, by registration
  std::vector<BufferId> removed;
  bool refuses = false;
  std::size_t room = 100;  // the daemon's quota, in registrations
  // Of a plan that somebody needs; 0 bytes: none.
  std::uint64_t needed_offset = 0, needed_bytes = 0;
  GpuBuffers buffers{
      {.add = [this](Gpu&, const GpuRange&, Deadline) -> Result<BufferId> {
         return BufferId{1000 + next++, 1};
       },
       .remove = [this](BufferId id, Deadline) { return remove(id); }},
      {.add = [this](Gpu& on, const GpuChunks& chunks, Deadline) { return add(on, chunks); },
       .remove_if_unneeded = [this](BufferId id, const IsThere& is_there,
                                    Deadline) -> Result<bool> {
         if (needed_bytes != 0 && is_there(kSegment + needed_offset, needed_bytes)) return false;
         ARC_RETURN_IF_ERROR(remove(id));
         return true;
       }}};
};

TEST_F(GpuSegmentsTest, RegistersTheChunksThatABufferTouches) {
  const Result<GpuBuffer> found = find(kChunk + 512, 2 * kChunk);  // the end of 1, 2, some of 3
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  EXPECT_EQ(told, std::vector<std::size_t>{3});
  EXPECT_EQ(found->range.base, kSegment + kChunk);
  EXPECT_EQ(found->range.bytes, 3 * kChunk);
  EXPECT_EQ(found->offset_of(in_segment(kChunk + 512)), 512u);
  EXPECT_TRUE(found->in_chunks);
  EXPECT_EQ(gpu.held_chunks, 3);
}

TEST_F(GpuSegmentsTest, WhatEndsWithAChunkTouchesNoMore) {
  ASSERT_TRUE(find(0, kChunk).ok());
  ASSERT_TRUE(find(2 * kChunk - 4, 8).ok());
  EXPECT_EQ(told, (std::vector<std::size_t>{1, 2}));
}

TEST_F(GpuSegmentsTest, FindsEveryBufferInsideARunAndLooksOnlyAtItsChunks) {
  const Result<GpuBuffer> whole = find(0, 6 * kChunk);
  ASSERT_TRUE(whole.ok());
  gpu.looks_at_chunks = 0;
  const Result<GpuBuffer> inside = find(4 * kChunk - 256, 1024);
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(inside->id, whole->id);
  EXPECT_EQ(gpu.looks_at_chunks, 2);
  EXPECT_EQ(told.size(), 1u);
}

TEST_F(GpuSegmentsTest, RegistersARunAcrossOthersWhereNoneHoldsTheBuffer) {
  const Result<GpuBuffer> low = find(0, 2 * kChunk);
  const Result<GpuBuffer> across = find(kChunk, 2 * kChunk);
  ASSERT_TRUE(low.ok() && across.ok());
  EXPECT_NE(low->id, across->id);
  EXPECT_TRUE(removed.empty()) << "a graph may hold a plan on the first";
  EXPECT_EQ(find(0, 2 * kChunk)->id, low->id);
  EXPECT_EQ(find(kChunk, 64)->id, low->id) << "the first one, whatever came since";
}

TEST_F(GpuSegmentsTest, GivesBackTheOldestThatNobodyNeedsWhereTheQuotaIsUsedUp) {
  room = 2;
  needed_bytes = 4;  // all of them
  ASSERT_TRUE(find(0, kChunk).ok());
  const Result<GpuBuffer> second = find(kChunk, kChunk);
  EXPECT_EQ(find(2 * kChunk, kChunk).error().reason, Reason::Quota);
  needed_bytes = 0;
  const Result<GpuBuffer> third = find(2 * kChunk, kChunk);
  ASSERT_TRUE(second.ok() && third.ok());
  EXPECT_EQ(removed.size(), 1u);
  EXPECT_EQ(find(kChunk, kChunk)->id, second->id);
  EXPECT_EQ(gpu.held_chunks, 2);
}

TEST_F(GpuSegmentsTest, NoticesOtherMemoryUnderTheSameAddresses) {
  const Result<GpuBuffer> before = find(0, 3 * kChunk);
  gpu.map(kSegment + kChunk, kChunk, 77);
  const Result<GpuBuffer> now = find(0, 3 * kChunk);
  ASSERT_TRUE(before.ok() && now.ok());
  EXPECT_NE(before->id, now->id);
  EXPECT_EQ(removed, std::vector{before->id});
  EXPECT_EQ(gpu.held_chunks, 3) << "what is given back is no longer held";
}

TEST_F(GpuSegmentsTest, NoticesWhatLiesThereWithAnotherSize) {
  const Result<GpuBuffer> before = find(0, kChunk);
  gpu.map(kSegment, kChunk / 2, 1);
  gpu.map(kSegment + kChunk / 2, kChunk / 2, 78);
  const Result<GpuBuffer> now = find(0, kChunk);
  ASSERT_TRUE(before.ok() && now.ok());
  EXPECT_NE(before->id, now->id);
  EXPECT_EQ(told, (std::vector<std::size_t>{1, 2}));
}

TEST_F(GpuSegmentsTest, WhatComesBackToItsPlaceIsStillRegistered) {
  const Result<GpuBuffer> before = find(0, kChunk);
  gpu.map(kSegment, 0, 0);
  EXPECT_FALSE(find(0, kChunk).ok());
  gpu.map(kSegment, kChunk, 1);
  EXPECT_EQ(find(0, kChunk)->id, before->id);
}

TEST_F(GpuSegmentsTest, GivesBackUnmappedMemoryWhenOtherMemoryIsRegistered) {
  const Result<GpuBuffer> gone = find(0, 2 * kChunk);
  gpu.map(kSegment, 0, 0);
  gpu.map(kSegment + kChunk, 0, 0);
  ASSERT_TRUE(find(3 * kChunk, 64).ok());
  EXPECT_EQ(removed, std::vector{gone->id});
  EXPECT_EQ(gpu.held_chunks, 1);
}

TEST_F(GpuSegmentsTest, GivesUnmappedMemoryBackForAnAllocationToo) {
  const Result<GpuBuffer> gone = find(0, kChunk);
  gpu.map(kSegment, 0, 0);
  gpu.place(0x7f0000000000, 1 << 20, 500);
  const Result<GpuBuffer> other =
      buffers.find(gpu, reinterpret_cast<const void*>(0x7f0000000000), 64, deadline());
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(other->in_chunks);
  EXPECT_EQ(removed, std::vector{gone->id});
}

TEST_F(GpuSegmentsTest, KeepsAPartlyUnmappedRunWhosePlansLieElsewhereInIt) {
  const Result<GpuBuffer> run = find(0, 3 * kChunk);
  needed_offset = 64;  // in a graph, say
  needed_bytes = 1024;
  gpu.map(kSegment + 2 * kChunk, 0, 0);
  ASSERT_TRUE(find(4 * kChunk, 64).ok());
  EXPECT_TRUE(removed.empty());
  EXPECT_EQ(find(0, kChunk)->id, run->id) << "its other chunks serve on";
  gpu.map(kSegment, kChunk, 79);
  ASSERT_TRUE(find(5 * kChunk, 64).ok());
  EXPECT_EQ(removed, std::vector{run->id}) << "the graph's memory has gone, too";
}

// The sides of an AllReduce are found one after the other.
TEST_F(GpuSegmentsTest, TheSecondAttemptFindsWhatTheFirstGaveBack) {
  ASSERT_TRUE(find(0, 3 * kChunk).ok());
  gpu.map(kSegment + 2 * kChunk, 0, 0);
  int attempts = 0;
  const auto attempt = [&]() -> Status {
    ++attempts;
    const Result<GpuBuffer> send = find(0, kChunk), recv = find(4 * kChunk, kChunk);
    if (!send || !recv) return error(ErrorCode::Internal, Reason::Bug, "not found");
    for (const BufferId id : removed) {
      if (send->id == id || recv->id == id)
        return error(ErrorCode::NotFound, Reason::UnknownHandle, "buffer ", id);
    }
    return {};
  };
  const Status done = with_second_attempt(attempt);
  EXPECT_TRUE(done.ok()) << done.error().to_string();
  EXPECT_EQ(attempts, 2);
}

TEST_F(GpuSegmentsTest, OnlyWhatTheDaemonDoesNotKnowIsTriedAgain) {
  int attempts = 0;
  const auto attempt = [&]() -> Status {
    ++attempts;
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "enough");
  };
  EXPECT_EQ(with_second_attempt(attempt).error().reason, Reason::Quota);
  EXPECT_EQ(attempts, 1);
}

TEST_F(GpuSegmentsTest, RefusesABufferThatIsNotMappedToItsEnd) {
  const Result<GpuBuffer> beyond = find(5 * kChunk, kChunk + 1);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().reason, Reason::OutOfBounds);
  EXPECT_NE(beyond.error().message.find("mapped for 20971520 bytes"), std::string::npos);
  gpu.map(kSegment + 2 * kChunk, kChunk, 90, 1);  // another GPU's
  EXPECT_EQ(find(0, 3 * kChunk).error().reason, Reason::OutOfBounds);
  gpu.place(kSegment + 2 * kChunk, kChunk, 91);  // cudaMalloc's
  EXPECT_EQ(find(0, 3 * kChunk).error().reason, Reason::OutOfBounds);
  EXPECT_EQ(gpu.held_chunks, 0);
}

TEST_F(GpuSegmentsTest, RefusesMoreChunksThanOneRegistrationMayHave) {
  for (std::uint64_t i = 0; i <= kMostChunks; ++i) gpu.map(kSegment + i * 4096, 4096, 100 + i);
  ASSERT_TRUE(find(0, kMostChunks * 4096).ok());
  const Result<GpuBuffer> many = find(0, kMostChunks * 4096 + 1);
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().code, ErrorCode::OutOfRange);
  EXPECT_NE(many.error().message.find("more than 256 chunks"), std::string::npos);
  EXPECT_EQ(gpu.held_chunks, static_cast<int>(kMostChunks));
}

TEST_F(GpuSegmentsTest, AFailureInTheMiddleHoldsNothing) {
  gpu.unshared = 3;
  EXPECT_EQ(find(0, 4 * kChunk).error().reason, Reason::Unsupported);
  EXPECT_EQ(gpu.held_chunks, 0);
  gpu.unshared = 0;
  refuses = true;
  EXPECT_EQ(find(0, 4 * kChunk).error().reason, Reason::Quota);
  EXPECT_EQ(gpu.held_chunks, 0);
  refuses = false;
  EXPECT_TRUE(find(0, 4 * kChunk).ok());
}

TEST_F(GpuSegmentsTest, KeepsTheChunksOfEachGpuApart) {
  other_gpu.number = 1;
  const Result<GpuBuffer> here = find(0, kChunk);
  for (FakeGpu* one : {&gpu, &other_gpu}) one->map(kSegment + 8 * kChunk, kChunk, 40, 1);
  const Result<GpuBuffer> there = buffers.find(other_gpu, in_segment(8 * kChunk), 64, deadline());
  ASSERT_TRUE(here.ok() && there.ok()) << there.error().to_string();
  EXPECT_TRUE(removed.empty()) << "its chunks are not there for the other GPU to see";
  EXPECT_FALSE(find(8 * kChunk, 64).ok());
}

TEST_F(GpuSegmentsTest, ForgetsEveryRunAroundAPointerUnlessAPlanNeedsIt) {
  const Result<GpuBuffer> first = find(0, 2 * kChunk);
  const Result<GpuBuffer> second = find(kChunk, 2 * kChunk);
  needed_offset = kChunk;
  needed_bytes = 4;
  const Status refused = buffers.forget(in_segment(kChunk), deadline());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition);
  needed_bytes = 0;
  ASSERT_TRUE(buffers.forget(in_segment(kChunk), deadline()).ok());
  EXPECT_EQ(removed, (std::vector{first->id, second->id}));
  EXPECT_EQ(gpu.held_chunks, 0);
  EXPECT_EQ(buffers.forget(in_segment(0), deadline()).error().code, ErrorCode::NotFound);
}

TEST_F(GpuSegmentsTest, ForgetsWhatLiesWhereARunWas) {
  const Result<GpuBuffer> run = find(0, 2 * kChunk);
  needed_bytes = 4;  // of the run, which stays
  auto* const address = reinterpret_cast<void*>(kSegment);
  gpu.map(kSegment, kChunk, 81);
  gpu_allocations().insert(std::make_shared<GpuAllocation>(
      GpuAllocation{.mapping = std::make_unique<FakeMapping>(address, 0, &gpu.open_mappings),
                    .memory = UniqueFd()}));
  const GpuBuffer ours{.range = *gpu.range_of(address), .id = {500, 1}};
  ASSERT_TRUE(buffers.add_known(ours, deadline()).ok());
  const Status forgotten = buffers.forget(address, deadline());
  EXPECT_TRUE(forgotten.ok()) << forgotten.error().to_string();
  EXPECT_EQ(removed, std::vector{ours.id});
  gpu_allocations().take(address);
  needed_bytes = 0;
  gpu.place(kSegment, kChunk, 82);  // cudaMalloc's
  const Result<GpuBuffer> theirs = buffers.find(gpu, address, 64, deadline());
  ASSERT_TRUE(run.ok() && theirs.ok());
  EXPECT_EQ(removed, (std::vector{ours.id, run->id}));
  EXPECT_TRUE(buffers.forget(address, deadline()).ok());
  EXPECT_EQ(removed.back(), theirs->id);
}

}  // namespace
}  // namespace arcomm::client
