// Launches that wait in their streams, behind gates: for a call, and cancelled there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include "kernels/launch/cuda_queue.h"
#include "kernels/launch/gated_launch.h"
#include "proto/gpu/device_mailbox.h"
#include "tests/gpu/kernels/node/gpu_node.h"

namespace arcomm::gpu {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kCount = 100'000;
constexpr std::int32_t kPoison = -77;
constexpr std::uint32_t kPlan = 5;

class SpeculationOnGpus : public testing::Test {
 protected:
  struct Rank {
    CudaQueue streams[2], side;
    Memory words;  // the doorbell, and the done word
    std::vector<PreparedAllReduce> prepared;
    std::uint64_t* doorbell() const { return reinterpret_cast<std::uint64_t*>(words.data()); }
    std::uint64_t* done() const { return doorbell() + 16; }
  };

  void SetUp() override {
    auto node = GpuNode::open(std::min(count_cuda_devices(), 4), 4 * kCount);
    ASSERT_TRUE(node) << node.error().to_string();
    node_ = std::make_unique<GpuNode>(std::move(*node));
    algorithms_ = node_->algorithms();
    kinds_ = static_cast<int>(algorithms_.size());
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      Rank one;
      for (CudaQueue* queue : {&one.streams[0], &one.streams[1], &one.side}) {
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
  // send: the rank's number plus one, so many times; recv: poison.
  void fill(std::int32_t times = 1) {
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      const CurrentCudaDevice current(rank);
      std::vector<std::int32_t> values(kCount, (rank + 1) * times);
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
  std::uint32_t done(int rank) {
    const CurrentCudaDevice current(rank);
    std::uint64_t word = 0;
    cudaMemcpy(&word, ranks_[static_cast<std::size_t>(rank)].done(), 8, cudaMemcpyDeviceToHost);
    return done_from(word).number;
  }
  CudaAllReduce call(int rank) {
    CudaAllReduce call = node_->call(rank, kCount, DType::Int32, ReduceOp::Sum);
    call.done = ranks_[static_cast<std::size_t>(rank)].done();
    return call;
  }
  CudaGate gate(int rank, std::chrono::nanoseconds lifetime) {
    return {.doorbell = ranks_[static_cast<std::size_t>(rank)].doorbell(),
            .plan = kPlan,
            .parity = gates_ % 2,
            .lifetime_ns = static_cast<std::uint64_t>(lifetime.count())};
  }
  bool reaches(int rank, std::uint32_t number) {
    const auto until = std::chrono::steady_clock::now() + 2s;
    while (done(rank) != number) {
      if (std::chrono::steady_clock::now() >= until) return false;
    }
    return true;
  }
  // On all ranks, each behind a gate that waits for the call of number ended_ + 1; in odd turns by
  // what was prepared before.
  void arm(CudaAlgorithm algorithm, std::chrono::nanoseconds lifetime = 10s) {
    const bool prepared = ++gates_ / 2 % 2 == 0;
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      Rank& one = ranks_[static_cast<std::size_t>(rank)];
      Status launched;
      if (prepared) {
        auto made = PreparedAllReduce::create(gate(rank, lifetime), algorithm, call(rank), {},
                                              one.streams[gates_ % 2].stream());
        ASSERT_TRUE(made) << made.error().to_string();
        one.prepared.push_back(std::move(*made));
        launched = one.prepared.back().launch(one.streams[gates_ % 2].stream());
      } else {
        launched = launch_all_reduce_behind(gate(rank, lifetime), algorithm, call(rank), {},
                                            one.streams[gates_ % 2].stream());
      }
      ASSERT_TRUE(launched) << launched.error().to_string();
    }
  }
  void open(int rank, std::uint32_t number) {
    Rank& one = ranks_[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(one.side.store(one.doorbell(), to_word(Doorbell{.number = number, .plan = kPlan})));
  }
  void cancel(int rank, std::uint32_t gate) {
    ASSERT_TRUE(ranks_[static_cast<std::size_t>(rank)].side.store(
        cancel_word((*node_)[rank].scratch.data()), gate));
  }
  void drain() {
    for (Rank& rank : ranks_) {
      for (CudaQueue& queue : rank.streams) {
        const Status drained = queue.drain(2s);
        ASSERT_TRUE(drained) << drained.error().to_string();
      }
    }
  }
  void expect_done() {
    for (int rank = 0; rank < node_->ranks(); ++rank) EXPECT_EQ(node_->outcome(rank).code, 0U);
  }

  std::unique_ptr<GpuNode> node_;
  std::vector<Rank> ranks_;
  std::vector<CudaAlgorithm> algorithms_;
  int kinds_ = 0;
  std::uint32_t ended_ = 0;  // number of the last operation that ran behind a gate
  std::uint32_t gates_ = 0;
};

TEST_F(SpeculationOnGpus, BeginsWhenItsGateOpens) {
  for (int turn = 0; turn < 100; ++turn) {
    const CudaAlgorithm algorithm = algorithms_[static_cast<std::size_t>(turn % kinds_)];
    ASSERT_NO_FATAL_FAILURE(arm(algorithm));
    if (turn < kinds_) {
      open(0, ended_ + 2);  // not its number
      std::this_thread::sleep_for(5ms);
      const Result<bool> idle = ranks_[0].streams[gates_ % 2].idle();
      ASSERT_TRUE(idle && !*idle) << "it did not wait";
      expect_everywhere(kPoison);
    }
    for (int rank = 0; rank < node_->ranks(); ++rank) open(rank, ended_ + 1);
    ASSERT_NO_FATAL_FAILURE(drain());
    ++ended_;
    expect_done();
    expect_everywhere(sum());
    EXPECT_EQ(done(0), ended_);
    // Too late: it names nothing that is still to come.
    for (int rank = 0; rank < node_->ranks(); ++rank) cancel(rank, gates_);
    fill();
  }
}

// Inputs change under a launch that was made once, and nothing of the last time may be seen: it
// begins before the SMs' caches have been emptied.
// Inputs change under launches that were made once, and nothing of the last time may be seen: they
// begin before the SMs' caches have been emptied. Two wait at a time.
TEST_F(SpeculationOnGpus, WhatIsPreparedOnceRunsAgainAndAgainOnNewInputs) {
  for (const CudaAlgorithm algorithm : algorithms_) {
    std::vector<std::vector<PreparedAllReduce>> prepared(2);
    for (std::uint32_t parity = 0; parity < 2; ++parity) {
      for (int rank = 0; rank < node_->ranks(); ++rank) {
        CudaGate own = gate(rank, 10s);
        own.parity = parity;
        auto made = PreparedAllReduce::create(
            own, algorithm, call(rank), {},
            ranks_[static_cast<std::size_t>(rank)].streams[parity].stream());
        ASSERT_TRUE(made) << made.error().to_string();
        prepared[parity].push_back(std::move(*made));
      }
    }
    const auto launch = [&] {
      const std::uint32_t parity = ++gates_ % 2;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        ASSERT_TRUE(prepared[parity][rank].launch(ranks_[rank].streams[parity].stream()));
    };
    launch();
    for (std::int32_t time = 1; time <= 50; ++time) {
      launch();
      fill(time);  // while the gates wait
      for (int rank = 0; rank < node_->ranks(); ++rank) open(rank, ended_ + 1);
      ++ended_;
      for (int rank = 0; rank < node_->ranks(); ++rank) ASSERT_TRUE(reaches(rank, ended_));
      expect_done();
      expect_everywhere(sum() * time);
    }
    for (int rank = 0; rank < node_->ranks(); ++rank) cancel(rank, gates_);
    ASSERT_NO_FATAL_FAILURE(drain());
    EXPECT_EQ(done(0), ended_);
  }
}

// One rank may be at the second when another is not yet done with the first.
TEST_F(SpeculationOnGpus, TwoThatWaitAreCancelledTogether) {
  for (int turn = 0; turn < 200; ++turn) {
    const CudaAlgorithm algorithm = algorithms_[static_cast<std::size_t>(turn % kinds_)];
    for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(arm(algorithm));
    const int begun = turn / kinds_ % node_->ranks();
    for (int rank = 0; rank < begun; ++rank) open(rank, ended_ + 1);
    for (int rank = 0; rank < node_->ranks(); ++rank) cancel(rank, gates_);
    ASSERT_NO_FATAL_FAILURE(drain());
    expect_done();
    EXPECT_EQ(done(0), ended_);
    ASSERT_NO_FATAL_FAILURE(arm(algorithm));
    for (int rank = 0; rank < node_->ranks(); ++rank) open(rank, ended_ + 1);
    ASSERT_NO_FATAL_FAILURE(drain());
    ++ended_;
    expect_done();
    EXPECT_EQ(done(0), ended_);
  }
  expect_everywhere(sum());
}

TEST_F(SpeculationOnGpus, CancelledWhileSomeRanksWaitTouchesNoOutput) {
  for (int turn = 0; turn < 30; ++turn) {
    const CudaAlgorithm algorithm = algorithms_[static_cast<std::size_t>(turn % kinds_)];
    const std::uint32_t before = done(0);
    ASSERT_NO_FATAL_FAILURE(arm(algorithm));
    const int begun = turn / kinds_ % node_->ranks();  // so many ranks have called
    for (int rank = 0; rank < begun; ++rank) open(rank, ended_ + 1);
    std::this_thread::sleep_for(2ms);
    for (int rank = 0; rank < node_->ranks(); ++rank) cancel(rank, gates_);
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

TEST_F(SpeculationOnGpus, GateThatNobodyOpensGivesUpByItself) {
  for (const CudaAlgorithm algorithm : algorithms_) {
    ASSERT_NO_FATAL_FAILURE(arm(algorithm, 20ms));
    open(0, ended_ + 1);
    ASSERT_NO_FATAL_FAILURE(drain());
    expect_done();
    expect_everywhere(kPoison);
    ASSERT_NO_FATAL_FAILURE(arm(algorithm));
    for (int rank = 0; rank < node_->ranks(); ++rank) open(rank, ended_ + 1);
    ASSERT_NO_FATAL_FAILURE(drain());
    ++ended_;
    expect_everywhere(sum());
    fill();
  }
}

// Calls and cancelling meet: all or nothing, and nothing waits for long.
TEST_F(SpeculationOnGpus, CancelledAsItBeginsHappensOnAllRanksOrOnNone) {
  int happened = 0;
  constexpr int kTurns = 300;
  for (int turn = 0; turn < kTurns; ++turn) {
    ASSERT_NO_FATAL_FAILURE(arm(algorithms_[static_cast<std::size_t>(turn % kinds_)]));
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      const bool sure = turn / kinds_ % 4 == 0 && rank == 0;
      if (sure) cancel(rank, gates_);
      open(rank, ended_ + 1);
      if (!sure) cancel(rank, gates_);
    }
    ASSERT_NO_FATAL_FAILURE(drain());
    expect_done();
    const bool ran = done(0) == ended_ + 1;
    happened += ran ? 1 : 0;
    ended_ += ran ? 1 : 0;
    for (int rank = 1; rank < node_->ranks(); ++rank) EXPECT_EQ(done(rank), done(0));
    expect_everywhere(ran ? sum() : kPoison);
    fill();
  }
  EXPECT_LT(happened, kTurns);
}

// Preparing must not wait for anything that waits for a client.
TEST_F(SpeculationOnGpus, IsPreparedWhileAnotherWaits) {
  ASSERT_NO_FATAL_FAILURE(arm(algorithms_[0], 3s));
  const auto begin = std::chrono::steady_clock::now();
  auto made =
      PreparedAllReduce::create(gate(0, 1s), algorithms_[0], call(0), {}, ranks_[0].side.stream());
  const auto took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(made) << made.error().to_string();
  RecordProperty("us", static_cast<int>(took / 1us));
  std::printf("prepared beside a gate that waits: %d us\n", static_cast<int>(took / 1us));
  for (int rank = 0; rank < node_->ranks(); ++rank) open(rank, ended_ + 1);
  ASSERT_NO_FATAL_FAILURE(drain());
  expect_everywhere(sum());
}

}  // namespace
}  // namespace arcomm::gpu
