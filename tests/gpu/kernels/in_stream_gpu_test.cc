// The kernels that clients launch by themselves: bit for bit, over many numbers, and how they end
// where ranks do not agree or do not come.
#include <array>
#include <cstdlib>

#include "tests/gpu/kernels/in_stream_fixture.h"

namespace arcomm::gpu {
namespace {

constexpr std::array kTypes = {DType::Float16, DType::BFloat16, DType::Float32};

// On both sides of where one algorithm, one block or one packet per warp ends, as far as they go.
std::vector<std::uint64_t> sizes(std::uint32_t ranks) {
  std::vector<std::uint64_t> all = {4, 12, 1000, 4096, 4100, 32768, 65536, 65540, 250'004, 262144};
  all.insert(all.end(), {262148, 1'000'012, 2 << 20});
  if (ranks == 2) {
    all.insert(all.end(), {1'474'564, 2'949'124, 4'423'684, 4'423'688, 8'847'364, 12'345'676,
                           kMaxInStreamBytes - 4, kMaxInStreamBytes});
  }
  return all;
}

TEST_P(InStreamOnGpus, EqualTheReferenceForEveryTypeOperationAndSize) {
  unsigned run = 0;
  for (const DType dtype : kTypes) {
    for (unsigned op = 0; op < kReduceOps; ++op) {
      for (const std::uint64_t bytes : sizes(ranks())) {
        const Operation what{.dtype = dtype,
                             .op = static_cast<ReduceOp>(op),
                             .count = bytes / size_of(dtype),
                             .in_place = (++run + op) % 2 == 0};
        if (shape_of(what).blocks == 0) continue;
        ASSERT_NO_FATAL_FAILURE(check(what));
      }
    }
  }
  expect_no_failure();
}

TEST_P(InStreamOnGpus, TakeAnyPointerAlignedToTheElement) {
  for (const DType dtype : kTypes) {
    for (const std::uint64_t send : {0U, 1U, 3U}) {
      for (const std::uint64_t recv : {0U, 1U, 2U}) {
        for (const std::uint64_t count : {1U, 3'001U, 40'003U, 120'007U, 3'000'001U}) {
          const std::uint64_t size = size_of(dtype);
          const Operation what{.dtype = dtype,
                               .count = count,
                               .send_offset = send * size,
                               .recv_offset = recv * size};
          if (shape_of(what).blocks == 0) continue;
          ASSERT_NO_FATAL_FAILURE(check(what));
        }
      }
    }
  }
  expect_no_failure();
}

// Every slot of both halves again and again, over turns that wipe; long and short ones in turn, one
// launched while the one before it is on its way out.
TEST_P(InStreamOnGpus, GiveTheSameBitsOverThousandsOfTurns) {
  std::vector<Operation> turns;
  for (const std::uint64_t bytes : sizes(ranks())) {
    const Operation what{.count = bytes / 2};
    if (shape_of(what).blocks != 0) turns.push_back(what);
  }
  ASSERT_GT(turns.size(), 4U);
  for (int round = 0; round < 12; ++round) {
    std::shuffle(turns.begin(), turns.end(), random_);
    std::vector<cudaGraphExec_t> graphs(ranks());
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      ARC_ASSERT_CUDA(cudaSetDevice(ranks_[rank].device));
      ARC_ASSERT_CUDA(
          cudaStreamBeginCapture(ranks_[rank].stream, cudaStreamCaptureModeThreadLocal));
      for (const Operation& what : turns) ASSERT_NO_FATAL_FAILURE(launch(rank, what));
      cudaGraph_t graph = nullptr;
      ARC_ASSERT_CUDA(cudaStreamEndCapture(ranks_[rank].stream, &graph));
      ARC_ASSERT_CUDA(cudaGraphInstantiate(&graphs[rank], graph, 0));
      cudaGraphDestroy(graph);
    }
    // The last one writes last, and what it leaves of a longer one's result is that one's.
    ASSERT_NO_FATAL_FAILURE(prepare(*std::max_element(
        turns.begin(), turns.end(),
        [](const Operation& a, const Operation& b) { return a.count < b.count; })));
    for (int replay = 0; replay < 25; ++replay) {
      for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
        ARC_ASSERT_CUDA(cudaSetDevice(ranks_[rank].device));
        if (replay % 5 == 0) {
          ARC_ASSERT_CUDA(cudaMemsetAsync(ranks_[rank].recv + kGuard, 0xa5, expected_.size() - 1,
                                          ranks_[rank].stream));
        }
        ARC_ASSERT_CUDA(cudaGraphLaunch(graphs[rank], ranks_[rank].stream));
      }
    }
    ASSERT_NO_FATAL_FAILURE(synchronize());
    ASSERT_NO_FATAL_FAILURE(expect_results({.count = (expected_.size() - 1) / 2}));
    for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
  }
  expect_no_failure();
}

TEST_P(InStreamOnGpus, NameTheRankThatDoesNotComeAndWriteNothing) {
  const Operation what{.count = 500'000 / ranks(), .timeout_ns = 50'000'000};
  ASSERT_NO_FATAL_FAILURE(prepare(what));
  for (std::uint32_t rank = 0; rank + 1 < ranks(); ++rank)
    ASSERT_NO_FATAL_FAILURE(launch(rank, what));
  ASSERT_NO_FATAL_FAILURE(synchronize());
  expected_.assign(expected_.size(), std::byte{0xa5});
  expect_results(what);
  for (std::uint32_t rank = 0; rank + 1 < ranks(); ++rank) {
    EXPECT_EQ(failure(rank).reason, static_cast<std::uint8_t>(Reason::Timeout));
    EXPECT_EQ(failure(rank).culprit_rank, static_cast<std::int16_t>(ranks() - 1));
  }
}

TEST_P(InStreamOnGpus, TellRanksThatCallDifferently) {
  const Operation what{.count = 20'000, .timeout_ns = 500'000'000};
  Operation other = what;
  other.count += 2;
  expect_mismatch(what, other);
}

TEST_P(InStreamOnGpus, MeetWithNoElements) {
  const Operation none{}, one{.count = 1};
  for (int i = 0; i < 3; ++i) {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      ASSERT_NO_FATAL_FAILURE(launch(rank, none));
  }
  ASSERT_NO_FATAL_FAILURE(check(one));
  expect_no_failure();
}

TEST_P(InStreamOnGpus, TellARankThatCallsWithNoElementsWhereOthersHaveSome) {
  const Operation what{.count = 20'000, .timeout_ns = 500'000'000};
  Operation none = what;
  none.count = 0;
  ASSERT_NO_FATAL_FAILURE(prepare(what));
  for (std::uint32_t rank = 0; rank < ranks(); ++rank)
    ASSERT_NO_FATAL_FAILURE(launch(rank, rank == 0 ? none : what));
  ASSERT_NO_FATAL_FAILURE(synchronize());
  expected_.assign(expected_.size(), std::byte{0xa5});
  expect_results(what);
  for (std::uint32_t rank = 0; rank < ranks(); ++rank)
    EXPECT_EQ(failure(rank).reason, static_cast<std::uint8_t>(Reason::Mismatch)) << rank;
}

// Whoever finds it closed, before or while it waits, leaves and says so.
TEST_P(InStreamOnGpus, EndWhenTheirMailboxIsClosed) {
  const Done closed{.code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                    .reason = static_cast<std::uint8_t>(Reason::RemoteDied)};
  const std::uint64_t word = to_word(closed);
  const Operation what{.count = 20'000};
  ASSERT_NO_FATAL_FAILURE(prepare(what));
  ASSERT_NO_FATAL_FAILURE(launch(0, what));
  cudaStream_t side = nullptr;
  ARC_ASSERT_CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  ARC_ASSERT_CUDA(
      cudaMemcpyAsync(&ranks_[0].mailbox->closed, &word, 8, cudaMemcpyHostToDevice, side));
  ASSERT_NO_FATAL_FAILURE(launch(0, what));
  ARC_ASSERT_CUDA(cudaStreamSynchronize(ranks_[0].stream));
  cudaStreamDestroy(side);
  EXPECT_EQ(failure(0).reason, closed.reason);
  expected_.assign(expected_.size(), std::byte{0xa5});
  expect_results(what);
}

INSTANTIATE_TEST_SUITE_P(Ranks, InStreamOnGpus, testing::Values(2U, 3U, 4U, 5U, 8U));

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  // A kernel that is loaded at its first launch waits for those that run on the GPU; and streams
  // that share a connection have one order, where ranks that share a GPU wait for each other.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
