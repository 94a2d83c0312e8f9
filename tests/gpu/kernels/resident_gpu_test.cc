// The resident grid through its doorbells: every type, count and alignment, and how long it takes.
#include <algorithm>
#include <cstdio>

#include "tests/gpu/kernels/resident_fixture.h"

namespace arcomm::gpu {
namespace {

TEST_P(ResidentGrids, LeaveWhenTold) {
  for (int i = 0; i < 20; ++i) {
    resume();
    const auto begin = std::chrono::steady_clock::now();
    pause();
    if (HasFatalFailure()) return;
    const auto took = std::chrono::steady_clock::now() - begin;
    std::printf("%.0f us ", std::chrono::duration<double, std::micro>(took).count());
  }
  std::printf("to pause\n");
}

TEST_P(ResidentGrids, RunOneOperation) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, 16, DType::Float32, ReduceOp::Sum));
  post_all(*main_, 1);
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank) {
    const DeviceMailbox seen = read_mailbox(*main_, rank);
    EXPECT_EQ(seen.paths[0].posted, 1U);
    EXPECT_EQ(seen.paths[0].doorbell, to_word(Doorbell{.number = 1, .plan = 1}));
    EXPECT_EQ(seen.paths[0].done, to_word(Done{.number = 1}));
    EXPECT_EQ(seen.closed, 0U) << "code " << int{done_from(seen.closed).code} << " reason "
                               << int{done_from(seen.closed).reason};
    EXPECT_EQ(status(*main_, rank).done, 1U);
  }
}

TEST_P(ResidentGrids, EveryTypeAndOperationIsTheReferenceBitForBit) {
  resume();
  for (unsigned dtype = 0; dtype < kDTypes; ++dtype) {
    for (unsigned op = 0; op < kReduceOps; ++op) {
      const auto type = static_cast<DType>(dtype);
      const std::uint64_t size = size_of(type);
      check(type, static_cast<ReduceOp>(op), 1 + random_() % 3000, 0, 0, false);
      check(type, static_cast<ReduceOp>(op), 1 + random_() % (kMaxResidentBytes / size), size,
            3 * size, op % 2 == 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ResidentGrids, CountsAndAlignmentsAtTheEdges) {
  resume();
  for (const std::uint64_t count :
       {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{4}, std::uint64_t{1023},
        std::uint64_t{1024}, std::uint64_t{1025}, std::uint64_t{10240}, std::uint64_t{10241},
        kMaxResidentBytes / 2 - 1, kMaxResidentBytes / 2}) {
    for (const std::uint64_t offset : {0U, 2U, 6U}) {
      check(DType::BFloat16, ReduceOp::Sum, count, offset, 8 - offset, offset == 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ResidentGrids, ManyOperationsOfAnySizeAndAlignment) {
  resume();
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t count = 1 + random_() % (kMaxResidentBytes / 2);
    check(DType::Float16, ReduceOp::Sum, count, random_() % 16 * 2, random_() % 16 * 2, i % 3 == 0);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ResidentGrids, TenThousandOperationsOfChangingSizesInARow) {
  resume();
  std::vector<std::uint64_t> counts;
  for (std::uint32_t index = 0; index < 64; ++index) {
    const std::uint64_t count = 1 + random_() % (kMaxResidentBytes / 2);
    for (int rank = 0; rank < ranks(); ++rank)
      set_plan(*main_, rank, index, plan(rank, count, DType::Float16, ReduceOp::Max, 0, 0, true));
  }
  for (int i = 0; i < 10'000; ++i) {
    post_all(*main_, static_cast<std::uint32_t>(random_() % 64));
    if (i % 256 == 255) {
      const Status ended = node_->synchronize(20s);
      ASSERT_TRUE(ended) << ended.error().to_string();
    }
  }
  ASSERT_TRUE(node_->synchronize(20s));
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(status(*main_, rank).done, 10'000U);
    EXPECT_EQ(status(*main_, rank).failed.code, 0);
  }
  check(DType::Float32, ReduceOp::Sum, kMaxResidentBytes / 4, 0, 0, false);
}

// A line or header of 2^32 operations ago carries the flag of the one that is to come: by then all
// of them have been wiped.
TEST_P(ResidentGrids, NumbersComeRoundAndNothingOfTheLastTimeIsLeft) {
  constexpr std::uint32_t kLater = 9, kBefore = kLater - 70'001, kOnce = 10'000;
  Group& aged = make_group(kBefore);
  std::vector<std::uint32_t> words(resident_scratch_bytes() / sizeof(std::uint32_t), kLater);
  const auto bytes = resident_scratch_bytes();
  for (int rank = 0; rank < ranks(); ++rank) {
    copy(rank, aged.scratch[static_cast<std::size_t>(rank)].data(), words.data(), bytes,
         cudaMemcpyHostToDevice);
    set_plan(aged, rank, 3, plan(rank, 16, DType::Float32, ReduceOp::Sum));
  }
  resume();
  for (int i = 0; i < 7; ++i) {
    post_all(aged, 3, kOnce);
    const Status ended = node_->synchronize(20s);
    ASSERT_TRUE(ended) << ended.error().to_string();
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    ASSERT_EQ(status(aged, rank).done, kLater - 1);
    copy(rank, words.data(), aged.scratch[static_cast<std::size_t>(rank)].data(), bytes,
         cudaMemcpyDeviceToHost);
    constexpr std::size_t kLine = 4, kHeaders = 2 * kMaxGpuRanks * 10, kHeaderLines = 256;
    for (std::size_t line = 0; line < words.size() / kLine; ++line) {
      if (line >= kHeaders && line < kHeaderLines) continue;  // no header is there
      ASSERT_FALSE(words[line * kLine + 1] == kLater || words[line * kLine + 3] == kLater) << line;
    }
  }
  main_ = &aged;
  for (int i = 0; i < 40; ++i) {
    check(DType::Float16, ReduceOp::Sum, 1 + random_() % (kMaxResidentBytes / 2), 0, 0, false);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ResidentGrids, LeavesAndComesBackInTheMiddleOfAnOperation) {
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, kMaxResidentBytes / 4, DType::Float32, ReduceOp::Sum));
  resume();
  for (int round = 0; round < 50; ++round) {
    for (int rank = 0; rank < ranks() - 1; ++rank) {
      cudaSetDevice(rank);
      ASSERT_EQ(post(mailbox(*main_, rank), 1, 1, (*node_)[rank].stream->handle()), cudaSuccess);
    }
    const auto begin = std::chrono::steady_clock::now();
    pause();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20ms);
    resume();
    const int last = ranks() - 1;
    cudaSetDevice(last);
    ASSERT_EQ(post(mailbox(*main_, last), 1, 1, (*node_)[last].stream->handle()), cudaSuccess);
    ASSERT_TRUE(node_->synchronize(5s));
  }
  for (int rank = 0; rank < ranks(); ++rank) EXPECT_EQ(status(*main_, rank).done, 50U);
}

TEST_P(ResidentGrids, TwoCommunicatorsInOppositeOrderDoNotBlockEachOther) {
  Group& other = make_group();
  resume();
  for (int rank = 0; rank < ranks(); ++rank) {
    set_plan(*main_, rank, 1, plan(rank, 20'000, DType::Float32, ReduceOp::Max, 0, 0, true));
    set_plan(other, rank, 2,
             plan(rank, 20'000, DType::Float32, ReduceOp::Max, kBytes / 2, 0, true));
  }
  for (int i = 0; i < 2000; ++i) {
    for (int rank = 0; rank < ranks(); ++rank) {
      cudaSetDevice(rank);
      auto* stream = (*node_)[rank].stream->handle();
      auto* side = (*node_)[rank].side->handle();
      const bool main_first = (rank + i) % 2 == 0;
      const auto post_main = [&] { return post(mailbox(*main_, rank), 1, 1, stream); };
      if (main_first) {
        ASSERT_EQ(post_main(), cudaSuccess);
      }
      ASSERT_EQ(post(mailbox(other, rank), 2, 1, side), cudaSuccess);
      if (!main_first) {
        ASSERT_EQ(post_main(), cudaSuccess);
      }
    }
    if (i % 100 == 99) {
      ASSERT_TRUE(node_->synchronize(5s));
    }
  }
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(status(*main_, rank).done, 2000U) << rank;
    cudaSetDevice(rank);
    cudaStreamSynchronize((*node_)[rank].side->handle());
    EXPECT_EQ(status(other, rank).done, 2000U) << rank;
  }
}

// Figures, not a verdict: an operation as a stream sees it that does nothing else.
TEST_P(ResidentGrids, SaysHowLongAnOperationTakes) {
  resume();
  for (std::uint64_t bytes = 1024; bytes <= kMaxResidentBytes; bytes *= 4) {
    for (int rank = 0; rank < ranks(); ++rank)
      set_plan(*main_, rank, 1, plan(rank, bytes / 2, DType::Float16, ReduceOp::Sum));
    float best = 1e9F;
    for (int turn = 0; turn < 5; ++turn) {
      cudaEvent_t begin, end;
      cudaSetDevice(0);
      cudaEventCreate(&begin);
      cudaEventCreate(&end);
      cudaEventRecord(begin, (*node_)[0].stream->handle());
      post_all(*main_, 1, 2000);
      cudaSetDevice(0);
      cudaEventRecord(end, (*node_)[0].stream->handle());
      ASSERT_TRUE(node_->synchronize(10s));
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      best = std::min(best, ms / 2);
      cudaEventDestroy(begin);
      cudaEventDestroy(end);
    }
    std::printf("%d ranks, %llu bytes: %.2f us\n", ranks(), static_cast<unsigned long long>(bytes),
                static_cast<double>(best));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ResidentGrids, testing::Values(2, 4),
                         [](const auto& one) { return std::to_string(one.param) + "Gpus"; });

}  // namespace
}  // namespace arcomm::gpu

// Suites for more GPUs than there are do not run; at least one must.
int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  testing::InitGoogleTest(&argc, argv);
  const int gpus = arcomm::count_cuda_devices();
  if (gpus < 2) {
    std::fprintf(stderr, "resident_gpu_test: needs 2 GPUs, and there are %d\n", gpus);
    return 1;
  }
  if (gpus < 4) testing::GTEST_FLAG(filter) = testing::GTEST_FLAG(filter) + "-*4Gpus*";
  return RUN_ALL_TESTS();
}
