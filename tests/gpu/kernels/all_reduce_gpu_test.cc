// The GPU kernels against the host's reference, bit for bit, and what they do when a rank does not
// come.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "kernels/launch/cuda_scratch.h"
#include "tests/gpu/kernels/all_reduce_fixture.h"
#include "transport/device/cuda/cuda_chunks.h"

namespace arcomm::gpu {
namespace {

using namespace std::chrono_literals;

TEST_P(AllReduceOnGpus, EqualsTheReferenceForEveryTypeOperationAndOddCount) {
  for (const CudaAlgorithm algorithm : node_->algorithms()) {
    for (unsigned d = 0; d < kDTypes; ++d) {
      for (unsigned o = 0; o < kReduceOps; ++o) {
        for (const std::uint64_t count : {0U, 1U, 2U, 3U, 7U, 64U, 65U, 1000U, 4099U, 30011U}) {
          const auto dtype = static_cast<DType>(d);
          ASSERT_NO_FATAL_FAILURE(
              check(algorithm, dtype, static_cast<ReduceOp>(o), count, 0, 0, count % 2 == 0));
        }
      }
    }
  }
  expect_done();
}

TEST_P(AllReduceOnGpus, TakesAnyPointerAlignedToTheElement) {
  for (const CudaAlgorithm algorithm : node_->algorithms()) {
    for (const DType dtype : {DType::Float16, DType::Float32, DType::Int8, DType::Float64}) {
      for (const std::uint64_t send : {0U, 1U, 3U}) {
        for (const std::uint64_t recv : {0U, 1U, 2U}) {
          const std::uint64_t size = size_of(dtype);
          ASSERT_NO_FATAL_FAILURE(
              check(algorithm, dtype, ReduceOp::Sum, 5003, send * size, recv * size, false));
        }
      }
    }
  }
  expect_done();
}

TEST_P(AllReduceOnGpus, GivesTheSameBitsWhateverTheNumberOfBlocks) {
  for (const std::uint32_t blocks : {1U, 2U, 7U, 64U, 128U}) {
    for (const CudaAlgorithm algorithm : node_->algorithms()) {
      const std::uint64_t most = entry_of(algorithm).max_bytes;
      const std::uint64_t count = most == 0 ? 3'000'017 : most <= kMaxLl16Bytes ? 200'003 : 500'003;
      for (const bool in_place : {false, true}) {
        ASSERT_NO_FATAL_FAILURE(check(algorithm, in_place ? DType::BFloat16 : DType::Float16,
                                      ReduceOp::Sum, count, 0, 0, in_place, {blocks}));
      }
    }
  }
  expect_done();
}

TEST_P(AllReduceOnGpus, RefusesWhatAnAlgorithmCannotTake) {
  const Status refused = node_->launch(CudaAlgorithm::OneShotLl16, kMaxLl16Bytes / 4 + 1,
                                       DType::Float32, ReduceOp::Sum);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::OutOfRange);
}

TEST_P(AllReduceOnGpus, LinesThatArriveTornKeepTheAlgorithmsAwayThatNeedThemWhole) {
  bool whole = true;
  for (int writer = 0; writer < node_->ranks(); ++writer) {
    for (int reader = 0; reader < node_->ranks(); ++reader) {
      if ((*node_)[writer].device->ordinal() == (*node_)[reader].device->ordinal()) continue;
      const Result<Ll128Verdict> verdict = node_->try_lines(writer, reader);
      ASSERT_TRUE(verdict) << verdict.error().to_string();
      EXPECT_GE(verdict->changes, kFewestLl128Changes);
      whole &= verdict->lines_are_whole();
      std::printf("rank %d to rank %d: %lu lines seen to change, %lu of them torn\n", writer,
                  reader, verdict->changes, verdict->torn);
    }
  }
  const std::vector<CudaAlgorithm> there = node_->algorithms();
  EXPECT_EQ(std::count_if(there.begin(), there.end(),
                          [](CudaAlgorithm one) { return entry_of(one).needs_atomic_128b_stores; }),
            whole ? 2 : 0);
}

// Both use one region, each with lines elsewhere in it: the largest operations fill it, small ones
// come between, and what an earlier one left must not be taken for an answer.
TEST_P(AllReduceOnGpus, AlgorithmsThatShareARegionDoNotDisturbEachOther) {
  const auto ranks = static_cast<std::uint32_t>(node_->ranks());
  for (int turn = 0; turn < 24; ++turn) {
    for (const CudaAlgorithm algorithm : node_->algorithms()) {
      if (!entry_of(algorithm).needs_atomic_128b_stores) continue;
      const std::uint64_t most = algorithm == CudaAlgorithm::OneShotLl128
                                     ? max_one_shot_ll128_bytes(ranks)
                                     : entry_of(algorithm).max_bytes;
      const std::uint64_t count = turn % 3 == 0 ? most / 2 : random_() % (most / 2);
      ASSERT_NO_FATAL_FAILURE(
          check(algorithm, DType::Float16, ReduceOp::Sum, count, 0, 0, turn % 2 == 0));
    }
  }
  expect_done();
}

// Sizes, shapes and algorithms change from one operation to the next, every operation has its own
// input, and ranks come late by turns: what breaks kernels whose scratch moves with the size or
// whose flags are reused too early. Some of each output is kept, in stream order, and looked at in
// the end.
TEST_P(AllReduceOnGpus, SurvivesChangingSizesAndLateRanks) {
  constexpr int kOperations = 3000;
  constexpr std::uint64_t kCount = 262'144;
  constexpr std::uint64_t kKept = 3;  // bytes of each output: first, middle, last
  const int ranks = node_->ranks();
  const std::vector<CudaAlgorithm> algorithms = node_->algorithms();
  const auto value = [](int operation, int rank) { return (operation * 7 + rank * 13) & 0x3f; };
  std::vector<Memory> kept;
  for (int rank = 0; rank < ranks; ++rank) {
    auto memory = (*node_)[rank].device->allocate(kOperations * kKept);
    ASSERT_TRUE(memory) << memory.error().to_string();
    kept.push_back(std::move(*memory));
  }
  for (int i = 0; i < kOperations; ++i) {
    const CudaAlgorithm algorithm = algorithms[random_() % algorithms.size()];
    const std::uint64_t count = random_() % 8 == 0 ? random_() % 64 : random_() % kCount;
    const CudaShape shape{static_cast<std::uint32_t>(random_() % 3 == 0 ? 0 : 1 + random_() % 40)};
    const int late = static_cast<int>(random_() % static_cast<std::uint64_t>(ranks));
    for (int turn = 0; turn < ranks; ++turn) {
      const int rank = (late + 1 + turn) % ranks;
      GpuRank& one = (*node_)[rank];
      if (rank == late && i % 64 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 500));
      }
      node_->use(rank);
      cudaStream_t stream = one.stream->handle();
      cudaMemsetAsync(one.send.data(), value(i, rank), count, stream);
      cudaMemsetAsync(one.recv.data(), 0xa5, count, stream);
      ASSERT_TRUE(launch_all_reduce(algorithm,
                                    node_->call(rank, count, DType::Uint8, ReduceOp::Sum),
                                    node_->fitting(shape), stream));
      if (count == 0) continue;
      std::byte* place =
          kept[static_cast<std::size_t>(rank)].data() + static_cast<std::size_t>(i) * kKept;
      for (const std::uint64_t at : {std::uint64_t{0}, count / 2, count - 1}) {
        cudaMemcpyAsync(place++, one.recv.data() + at, 1, cudaMemcpyDeviceToDevice, stream);
      }
    }
  }
  ASSERT_TRUE(node_->synchronize());
  expect_done();
  std::vector<unsigned char> seen(kOperations * kKept);
  for (int rank = 0; rank < ranks; ++rank) {
    node_->use(rank);
    cudaMemcpy(seen.data(), kept[static_cast<std::size_t>(rank)].data(), seen.size(),
               cudaMemcpyDeviceToHost);
    int operations = 0;
    for (int i = 0; i < kOperations; ++i) {
      int sum = 0;
      for (int r = 0; r < ranks; ++r) sum += value(i, r);
      const unsigned char* three = &seen[static_cast<std::size_t>(i) * kKept];
      if (three[0] == 0 && three[1] == 0 && three[2] == 0)
        continue;  // of no elements, or a sum of 0
      ++operations;
      for (std::uint64_t k = 0; k < kKept; ++k) {
        ASSERT_EQ(three[k], static_cast<unsigned char>(sum))
            << "operation " << i << ", rank " << rank;
      }
    }
    EXPECT_GT(operations, kOperations / 2);
  }
}

// A graph holds the launch, not the epoch; each replay reads what the input then is.
TEST_P(AllReduceOnGpus, AReplayedGraphIsANewOperationEachTime) {
  constexpr std::uint64_t kCount = 10'007;
  constexpr int kReplays = 500;
  const int ranks = node_->ranks();
  for (const CudaAlgorithm algorithm : node_->algorithms()) {
    std::vector<cudaGraphExec_t> graphs(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      node_->use(rank);
      cudaStream_t stream = (*node_)[rank].stream->handle();
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
      // In place and then out of place: the second sums up what the first left.
      for (const bool in_place : {true, false}) {
        ASSERT_TRUE(launch_all_reduce(
            algorithm, node_->call(rank, kCount, DType::Int32, ReduceOp::Sum, 0, 0, in_place),
            node_->fitting({}), stream));
      }
      ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
      ASSERT_EQ(cudaGraphInstantiate(&graphs[static_cast<std::size_t>(rank)], graph, 0),
                cudaSuccess);
      cudaGraphDestroy(graph);
    }
    std::vector<std::int32_t> values(kCount);
    for (int replay = 0; replay < kReplays; ++replay) {
      for (int rank = 0; rank < ranks; ++rank) {
        node_->use(rank);
        cudaStream_t stream = (*node_)[rank].stream->handle();
        if (replay % 50 == 0) {  // a new input, in stream order
          std::fill(values.begin(), values.end(), replay + rank);
          cudaMemcpyAsync((*node_)[rank].send.data(), values.data(), kCount * 4,
                          cudaMemcpyHostToDevice, stream);
          cudaStreamSynchronize(stream);
        } else {
          cudaMemsetAsync((*node_)[rank].send.data(), 0, kCount * 4, stream);
        }
        ASSERT_EQ(cudaGraphLaunch(graphs[static_cast<std::size_t>(rank)], stream), cudaSuccess);
      }
      if (replay % 50 > 1) continue;
      ASSERT_TRUE(node_->synchronize());
      const std::int32_t expected =
          replay % 50 == 0 ? ranks * (ranks * replay + ranks * (ranks - 1) / 2) : 0;
      for (int rank = 0; rank < ranks; ++rank) {
        node_->use(rank);
        cudaMemcpy(values.data(), (*node_)[rank].recv.data(), kCount * 4, cudaMemcpyDeviceToHost);
        ASSERT_TRUE(std::all_of(values.begin(), values.end(),
                                [&](std::int32_t x) { return x == expected; }))
            << "replay " << replay << ", rank " << rank << ": " << values[0] << " instead of "
            << expected;
      }
    }
    ASSERT_TRUE(node_->synchronize());
    for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
  }
  expect_done();
}

// Of one tile, and of more tiles than a block has slots for: then whoever pushes waits as well.
struct Waiting {
  std::uint64_t count;  // float32
  CudaShape shape;
};
constexpr Waiting kWaiting[] = {{1000, {}}, {400'000, {.blocks = 1}}};

TEST_P(AllReduceOnGpus, ARankThatNeverComesEndsTheOthersAtTheirDeadlineAndIsNamed) {
  node_->timeout_ns = 50'000'000;
  for (const CudaAlgorithm algorithm : node_->algorithms()) {
    for (const Waiting& waiting : kWaiting) {
      const int missing = node_->ranks() - 1;
      if (!can_launch(algorithm, node_->call(0, waiting.count, DType::Float32, ReduceOp::Sum)))
        continue;
      const auto started = std::chrono::steady_clock::now();
      for (int rank = 0; rank < missing; ++rank) {
        node_->use(rank);
        ASSERT_TRUE(launch_all_reduce(
            algorithm, node_->call(rank, waiting.count, DType::Float32, ReduceOp::Sum),
            node_->fitting(waiting.shape), (*node_)[rank].stream->handle()));
      }
      ASSERT_TRUE(node_->synchronize(5s));
      EXPECT_LT(std::chrono::steady_clock::now() - started, 150ms);
      EXPECT_EQ(node_->outcome(0).code, static_cast<std::uint32_t>(CudaOutcomeCode::Timeout));
      EXPECT_EQ(node_->outcome(0).culprit, static_cast<std::uint32_t>(missing))
          << name_of(algorithm) << ", " << waiting.count;
      node_->clear_scratch();
      ASSERT_NO_FATAL_FAILURE(check(algorithm, DType::Float32, ReduceOp::Sum, 1000, 0, 0, false));
      node_->clear_scratch();
    }
  }
}

TEST_P(AllReduceOnGpus, AnAbortEndsAWaitWithinAMillisecond) {
  for (const CudaAlgorithm algorithm : node_->algorithms()) {
    for (const Waiting& waiting : kWaiting) {
      const CudaAllReduce call = node_->call(0, waiting.count, DType::Float32, ReduceOp::Sum);
      if (!can_launch(algorithm, call)) continue;
      cudaSetDevice(0);
      ASSERT_TRUE(launch_all_reduce(algorithm, call, waiting.shape, (*node_)[0].stream->handle()));
      std::this_thread::sleep_for(20ms);
      ASSERT_FALSE((*node_)[0].stream->query()) << "the rank did not wait for its peers";
      const auto aborted = std::chrono::steady_clock::now();
      ASSERT_TRUE(abort_all_reduce((*node_)[0].scratch.data(), (*node_)[0].side->handle()));
      while (!(*node_)[0].stream->query())
        ASSERT_LT(std::chrono::steady_clock::now() - aborted, 5s);
      EXPECT_LT(std::chrono::steady_clock::now() - aborted, 1ms) << name_of(algorithm);
      EXPECT_EQ(node_->outcome(0).code, static_cast<std::uint32_t>(CudaOutcomeCode::Aborted));
      node_->clear_scratch();
      ASSERT_NO_FATAL_FAILURE(check(algorithm, DType::Float32, ReduceOp::Sum, 1000, 0, 0, false));
      node_->clear_scratch();
    }
  }
}

// What a client does with memory that the daemon allocated: imports the descriptor and sees the
// same bytes.
TEST_P(AllReduceOnGpus, MemoryComesBackThroughItsDescriptor) {
  GpuRank& one = (*node_)[0];
  cudaSetDevice(0);
  cudaMemset(one.send.data(), 0x5a, 4096);
  cudaDeviceSynchronize();
  Result<UniqueFd> descriptor = one.send.export_fd();
  ASSERT_TRUE(descriptor) << descriptor.error().to_string();
  const int last = std::min(node_->ranks(), count_cuda_devices()) - 1;
  const int both[] = {0, last};
  const CudaChunks::Piece whole{.descriptor = descriptor->get(), .bytes = one.send.bytes()};
  const Result<const CudaDriver*> driver = cuda_driver();
  ASSERT_TRUE(driver) << driver.error().to_string();
  CudaChunks mapped;
  const Status imported = mapped.import(**driver, {&whole, 1}, both);
  ASSERT_TRUE(imported) << imported.error().to_string();
  cudaSetDevice(last);  // also from another GPU
  std::vector<unsigned char> bytes(4096);
  ASSERT_EQ(cudaMemcpy(bytes.data(), mapped.view().data, bytes.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 0x5a; }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceOnGpus, testing::ValuesIn(rank_counts({3, 4, 8})),
                         [](const auto& one) { return std::to_string(one.param); });

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
