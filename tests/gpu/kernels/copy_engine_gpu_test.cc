// AllReduce by the copy engines: bit for bit, with chunks of all sizes, and between other kernels.
#include "kernels/launch/cuda_scratch.h"
#include "tests/gpu/kernels/all_reduce_fixture.h"

namespace arcomm::gpu {
namespace {

class CopyEnginesOnGpus : public AllReduceOnGpus {
 protected:
  void check_chunks(DType dtype, ReduceOp op, std::uint64_t count, std::uint64_t send_offset,
                    std::uint64_t recv_offset, bool in_place, std::uint64_t most_chunk_bytes) {
    node_->most_chunk_bytes = most_chunk_bytes;
    check(CudaAlgorithm::CopyEngine, dtype, op, count, send_offset, recv_offset, in_place);
  }
};

TEST_P(CopyEnginesOnGpus, EqualTheReferenceForEveryTypeOperationAndOddCount) {
  for (unsigned d = 0; d < kDTypes; ++d) {
    for (unsigned o = 0; o < kReduceOps; ++o) {
      for (const std::uint64_t count : {0U, 1U, 3U, 65U, 1000U, 30011U}) {
        ASSERT_NO_FATAL_FAILURE(check_chunks(static_cast<DType>(d), static_cast<ReduceOp>(o), count,
                                             0, 0, count % 2 == 0, 4096));
      }
    }
  }
  expect_done();
}

TEST_P(CopyEnginesOnGpus, TakeAnyPointerAlignedToTheElement) {
  for (const DType dtype : {DType::Int8, DType::BFloat16, DType::Float32}) {
    for (const std::uint64_t send : {0U, 1U, 3U}) {
      for (const std::uint64_t recv : {0U, 1U, 2U}) {
        const std::uint64_t size = size_of(dtype);
        ASSERT_NO_FATAL_FAILURE(
            check_chunks(dtype, ReduceOp::Sum, 50'003, send * size, recv * size, false, 8192));
      }
    }
  }
  expect_done();
}

// Slots are used again and again, at all distances between the first and the last chunk.
TEST_P(CopyEnginesOnGpus, GiveTheSameBitsWhateverTheSizeOfAChunk) {
  for (const std::uint64_t chunk : {64ULL, 65'536ULL, 1ULL << 20, 0ULL}) {
    for (const bool in_place : {false, true}) {
      const std::uint64_t count = chunk == 64 ? 20'011 : 3'000'017;
      ASSERT_NO_FATAL_FAILURE(
          check_chunks(DType::Float16, ReduceOp::Sum, count, 0, 0, in_place, chunk));
    }
  }
  expect_done();
}

TEST_P(CopyEnginesOnGpus, FollowAndPrecedeKernelsInTheRanksStreams) {
  const std::vector<CudaAlgorithm> others = node_->algorithms();
  for (int turn = 0; turn < 60; ++turn) {
    const bool copies = turn % 2 == 0;
    const CudaAlgorithm algorithm =
        copies ? CudaAlgorithm::CopyEngine : others[random_() % others.size()];
    node_->most_chunk_bytes = 1 + random_() % 100'000;
    ASSERT_NO_FATAL_FAILURE(
        check(algorithm, DType::BFloat16, ReduceOp::Sum, random_() % 200'000, 0, 0, turn % 3 == 0));
  }
  expect_done();
}

// Operations behind each other, nobody waiting between: none may write into memory that the one
// before it still reads. In place, so each result is the next one's input; few enough for ranks^n
// to stay below 2^64, where an element that was left out even once shows.
TEST_P(CopyEnginesOnGpus, OperationsInARowDoNotOvertakeEachOther) {
  constexpr std::uint64_t kElements = 1 << 20;
  constexpr int kSums = 20;
  const int ranks = node_->ranks();
  node_->most_chunk_bytes = std::uint64_t{64} << 10;
  std::vector<std::int64_t> values(kElements);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i % 5 + 1);
  for (int rank = 0; rank < ranks; ++rank) {
    node_->use(rank);
    cudaMemcpy((*node_)[rank].send.data(), values.data(), kElements * 8, cudaMemcpyHostToDevice);
  }
  constexpr CudaAlgorithm kTurns[] = {CudaAlgorithm::CopyEngine, CudaAlgorithm::CopyEngine,
                                      CudaAlgorithm::TwoShot, CudaAlgorithm::CopyEngine,
                                      CudaAlgorithm::Stream};
  std::int64_t factor = 1;
  for (int i = 0; i < kSums && factor < (std::int64_t{1} << 57); ++i) {
    factor *= ranks;
    ASSERT_TRUE(
        node_->launch(kTurns[i % 5], kElements, DType::Int64, ReduceOp::Sum, {}, 0, 0, true));
  }
  ASSERT_TRUE(node_->synchronize());
  for (int rank = 0; rank < ranks; ++rank) {
    node_->use(rank);
    cudaMemcpy(values.data(), (*node_)[rank].send.data(), kElements * 8, cudaMemcpyDeviceToHost);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<std::int64_t>(i % 5 + 1) * factor)
          << "rank " << rank << ", element " << i;
    }
  }
  expect_done();
}

// Each result is the next one's input, out of place from one buffer into the other and now and then
// in place, and nobody waits between: parts wait in outputs and in scratch that others use before
// and behind them.
TEST_P(CopyEnginesOnGpus, PartsThatWaitInOutputsAreNobodyElses) {
  struct Step {
    CudaAlgorithm algorithm;
    bool in_place;
  };
  constexpr Step kSteps[] = {{CudaAlgorithm::CopyEngine, false}, {CudaAlgorithm::Flash, false},
                             {CudaAlgorithm::CopyEngine, true},  {CudaAlgorithm::Stream, false},
                             {CudaAlgorithm::CopyEngine, false}, {CudaAlgorithm::CopyEngine, false},
                             {CudaAlgorithm::Stream, true},      {CudaAlgorithm::CopyEngine, true}};
  constexpr std::uint64_t kElements = (1 << 20) - 5;
  const int ranks = node_->ranks();
  std::vector<std::int64_t> values(kElements);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i % 5 + 1);
  for (int rank = 0; rank < ranks; ++rank) {
    node_->use(rank);
    cudaMemcpy((*node_)[rank].send.data(), values.data(), kElements * 8, cudaMemcpyHostToDevice);
    cudaMemset((*node_)[rank].recv.data(), 0xa5, kElements * 8);
    cudaDeviceSynchronize();
  }
  bool in_recv = false;
  std::int64_t factor = 1;
  for (std::size_t i = 0; factor < (std::int64_t{1} << 57); ++i) {
    const Step step = kSteps[i % std::size(kSteps)];
    const auto all = node_->algorithms();
    const bool runs = step.algorithm == CudaAlgorithm::CopyEngine ||
                      std::ranges::find(all, step.algorithm) != all.end();
    node_->swapped = in_recv;
    ASSERT_TRUE(node_->launch(runs ? step.algorithm : CudaAlgorithm::Stream, kElements,
                              DType::Int64, ReduceOp::Sum, {}, 0, 0, step.in_place));
    if (!step.in_place) in_recv = !in_recv;
    factor *= ranks;
  }
  ASSERT_TRUE(node_->synchronize());
  for (int rank = 0; rank < ranks; ++rank) {
    node_->use(rank);
    const Memory& last = in_recv ? (*node_)[rank].recv : (*node_)[rank].send;
    cudaMemcpy(values.data(), last.data(), kElements * 8, cudaMemcpyDeviceToHost);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<std::int64_t>(i % 5 + 1) * factor)
          << "rank " << rank << ", element " << i;
    }
  }
  expect_done();
}

// Slots of 32 MB, more than two of them for each sender; and one rank that sums in place among
// others that do not.
TEST_P(CopyEnginesOnGpus, LargeOnesGoInPlaceThroughWholeSlots) {
  const int ranks = node_->ranks();
  const std::uint64_t count =
      (static_cast<std::uint64_t>(ranks) * 5 * kCopySlotBytes / 2 + 4096) / sizeof(std::int32_t);
  node_.reset();  // its memory
  auto large = GpuNode::open(ranks, count * sizeof(std::int32_t), GpuNode::Gpus::Shared);
  ASSERT_TRUE(large) << large.error().to_string();
  std::vector<std::int32_t> values(count);
  for (const bool only_the_first : {false, true}) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<std::int32_t>(i * 2654435761U) + rank;
      large->use(rank);
      cudaMemcpy((*large)[rank].send.data(), values.data(), count * 4, cudaMemcpyHostToDevice);
      cudaMemset((*large)[rank].recv.data(), 0xa5, count * 4);
      cudaDeviceSynchronize();
    }
    std::vector<CudaAllReduce> calls;
    for (int rank = 0; rank < ranks; ++rank) {
      calls.push_back(large->call(rank, count, DType::Int32, ReduceOp::Sum, 0, 0, !only_the_first));
      if (only_the_first) calls.back().recv[0] = (*large)[0].send.data();
    }
    const Status launched = large->launch_copies(calls);
    ASSERT_TRUE(launched) << launched.error().to_string();
    ASSERT_TRUE(large->synchronize());
    for (int rank = 0; rank < ranks; ++rank) {
      large->use(rank);
      const bool in_send = !only_the_first || rank == 0;
      const Memory& result = in_send ? (*large)[rank].send : (*large)[rank].recv;
      cudaMemcpy(values.data(), result.data(), count * 4, cudaMemcpyDeviceToHost);
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t expected =
            static_cast<std::uint32_t>(i * 2654435761U) * static_cast<std::uint32_t>(ranks) +
            static_cast<std::uint32_t>(ranks * (ranks - 1) / 2);
        ASSERT_EQ(static_cast<std::uint32_t>(values[i]), expected)
            << "rank " << rank << ", element " << i << (only_the_first ? ", one in place" : "");
      }
    }
  }
}

TEST_P(CopyEnginesOnGpus, AreRefusedToASingleRank) {
  const Status alone =
      launch_all_reduce(CudaAlgorithm::CopyEngine, node_->call(0, 8, DType::Int32, ReduceOp::Sum),
                        {}, (*node_)[0].stream->handle());
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code, ErrorCode::InvalidArgument);
  const CudaAllReduce one = node_->call(0, 8, DType::Int32, ReduceOp::Sum);
  const Status some = node_->launch_copies(std::span(&one, 1));
  ASSERT_FALSE(some);
  EXPECT_EQ(some.error().code, ErrorCode::InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CopyEnginesOnGpus, testing::ValuesIn(rank_counts({3, 4})),
                         [](const auto& one) { return std::to_string(one.param); });

}  // namespace
}  // namespace arcomm::gpu
