// Launches that wait in their streams: for a word in device memory, and cancelled there.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "kernels/cuda_queue.h"
#include "tests/gpu/gpu_node.h"

namespace arcomm::gpu {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kCount = 100'000;
constexpr std::int32_t kPoison = -77;

class ArmedOnGpus : public testing::Test {
 protected:
  struct Rank {
    CudaQueue queue, side;
    Memory words;  // the gate, and the done word
    std::uint64_t* gate() const { return reinterpret_cast<std::uint64_t*>(words.data()); }
    std::uint64_t* done() const { return gate() + 16; }
  };

  void SetUp() override {
    auto node = GpuNode::open(std::min(count_cuda_devices(), 4), 4 * kCount);
    ASSERT_TRUE(node) << node.error().to_string();
    node_ = std::make_unique<GpuNode>(std::move(*node));
    algorithms_ = node_->algorithms();
    kinds_ = static_cast<int>(algorithms_.size());
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      Rank one;
      for (CudaQueue* queue : {&one.queue, &one.side}) {
        auto made = CudaQueue::create(rank);
        ASSERT_TRUE(made) << made.error().to_string();
        *queue = std::move(*made);
      }
      auto words = (*node_)[rank].device->allocate(4096);
      ASSERT_TRUE(words) << words.error().to_string();
      one.words = std::move(*words);
      ranks_.push_back(std::move(one));
    }
    fill();
  }
  // send: the rank's number plus one; recv: poison.
  void fill() {
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      const CurrentCudaDevice current(rank);
      std::vector<std::int32_t> values(kCount, rank + 1);
      cudaMemcpy((*node_)[rank].send.data(), values.data(), 4 * kCount, cudaMemcpyHostToDevice);
      std::fill(values.begin(), values.end(), kPoison);
      cudaMemcpy((*node_)[rank].recv.data(), values.data(), 4 * kCount, cudaMemcpyHostToDevice);
    }
  }
  void expect_everywhere(std::int32_t expected) {
    std::vector<std::int32_t> values(kCount);
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      const CurrentCudaDevice current(rank);
      cudaMemcpy(values.data(), (*node_)[rank].recv.data(), 4 * kCount, cudaMemcpyDeviceToHost);
      EXPECT_EQ(std::count(values.begin(), values.end(), expected),
                static_cast<std::ptrdiff_t>(kCount))
          << "rank " << rank << ": " << values[0] << " instead of " << expected;
    }
  }
  std::int32_t sum() const { return node_->ranks() * (node_->ranks() + 1) / 2; }
  std::uint64_t done(int rank) {
    const CurrentCudaDevice current(rank);
    std::uint64_t word = 0;
    cudaMemcpy(&word, ranks_[static_cast<std::size_t>(rank)].done(), 8, cudaMemcpyDeviceToHost);
    return word;
  }
  // On all ranks, behind their gates, which are shut until the word is `number`.
  void arm(CudaAlgorithm algorithm, std::uint32_t number) {
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      Rank& one = ranks_[static_cast<std::size_t>(rank)];
      CudaAllReduce call = node_->call(rank, kCount, DType::Int32, ReduceOp::Sum);
      call.cancel_number = number;
      call.done = one.done();
      call.done_word = number;
      const Status waits = one.queue.wait_equal(one.gate(), number);
      ASSERT_TRUE(waits) << waits.error().to_string();
      const Status launched = launch_all_reduce(algorithm, call, {}, one.queue.stream());
      ASSERT_TRUE(launched) << launched.error().to_string();
    }
  }
  void open(int rank, std::uint64_t number) {
    Rank& one = ranks_[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(one.side.store(one.gate(), number));
  }
  void cancel(int rank, std::uint32_t number) {
    ASSERT_TRUE(ranks_[static_cast<std::size_t>(rank)].side.store(
        cancel_word((*node_)[rank].scratch.data()), number));
  }
  void drain() {
    for (Rank& rank : ranks_) {
      const Status drained = rank.queue.drain(2s);
      ASSERT_TRUE(drained) << drained.error().to_string();
    }
  }
  void expect_done() {
    for (int rank = 0; rank < node_->ranks(); ++rank) EXPECT_EQ(node_->outcome(rank).code, 0U);
  }

  std::unique_ptr<GpuNode> node_;
  std::vector<Rank> ranks_;
  std::vector<CudaAlgorithm> algorithms_;
  int kinds_ = 0;
  std::uint32_t number_ = 0;
};

TEST_F(ArmedOnGpus, BeginsWhenItsGateOpens) {
  for (int turn = 0; turn < 100; ++turn) {
    const CudaAlgorithm algorithm = algorithms_[static_cast<std::size_t>(turn % kinds_)];
    ASSERT_NO_FATAL_FAILURE(arm(algorithm, ++number_));
    if (turn < kinds_) {
      std::this_thread::sleep_for(5ms);
      const Result<bool> idle = ranks_[0].queue.idle();
      ASSERT_TRUE(idle && !*idle) << "it did not wait";
      expect_everywhere(kPoison);
    }
    for (int rank = 0; rank < node_->ranks(); ++rank) open(rank, number_);
    ASSERT_NO_FATAL_FAILURE(drain());
    expect_done();
    expect_everywhere(sum());
    EXPECT_EQ(done(0), number_);
    // Too late: it names nothing that is still to come.
    for (int rank = 0; rank < node_->ranks(); ++rank) cancel(rank, number_);
    fill();
  }
}

TEST_F(ArmedOnGpus, CancelledWhileSomeRanksWaitTouchesNoOutput) {
  for (int turn = 0; turn < 30; ++turn) {
    const CudaAlgorithm algorithm = algorithms_[static_cast<std::size_t>(turn % kinds_)];
    const std::uint64_t before = done(0);
    ASSERT_NO_FATAL_FAILURE(arm(algorithm, ++number_));
    const int begun = turn / kinds_ % node_->ranks();  // so many ranks have called
    for (int rank = 0; rank < begun; ++rank) open(rank, number_);
    std::this_thread::sleep_for(2ms);
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      cancel(rank, number_);
      open(rank, number_);
    }
    ASSERT_NO_FATAL_FAILURE(drain());
    expect_done();
    expect_everywhere(kPoison);
    EXPECT_EQ(done(0), before);
    // And the next one finds nothing of it.
    ASSERT_TRUE(node_->launch(algorithm, kCount, DType::Int32, ReduceOp::Sum));
    ASSERT_TRUE(node_->synchronize());
    expect_done();
    expect_everywhere(sum());
    fill();
  }
}

// Calls and cancelling meet: all or nothing, and nothing waits for long.
TEST_F(ArmedOnGpus, CancelledAsItBeginsHappensOnAllRanksOrOnNone) {
  int happened = 0;
  constexpr int kTurns = 300;
  for (int turn = 0; turn < kTurns; ++turn) {
    ASSERT_NO_FATAL_FAILURE(arm(algorithms_[static_cast<std::size_t>(turn % kinds_)], ++number_));
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      const bool sure = turn / kinds_ % 4 == 0 && rank == 0;
      if (sure) cancel(rank, number_);
      open(rank, number_);
      if (!sure) cancel(rank, number_);
    }
    ASSERT_NO_FATAL_FAILURE(drain());
    expect_done();
    const bool ran = done(0) == number_;
    happened += ran ? 1 : 0;
    for (int rank = 1; rank < node_->ranks(); ++rank) EXPECT_EQ(done(rank) == number_, ran);
    expect_everywhere(ran ? sum() : kPoison);
    fill();
  }
  EXPECT_LT(happened, kTurns);
}

}  // namespace
}  // namespace arcomm::gpu
