// What the cases of the GPU hardware's conformance suite share: a communicator of two ranks with
// buffers, scratch and a mailbox each, calls on them, and waits that all end. What is left running
// by a case that failed is ended before its memory goes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/launch/cuda_scratch.h"
#include "proto/gpu/device_mailbox.h"
#include "tests/conformance/gpu_hardware/node.h"

namespace arcomm {

using namespace std::chrono_literals;

class GpuHardwareConformance : public testing::TestWithParam<HardwareUnderTest> {
 protected:
  using Rank = std::uint32_t;
  static constexpr std::uint32_t kRanks = kConformanceRanks;
  static constexpr std::uint64_t kCount = 1000;  // elements: few blocks, so that all find room
  static constexpr auto kPatience = 30s;
  static constexpr auto kWhile = 30ms;  // for which nothing is to happen
  static constexpr auto kShort = 60ms;  // a timeout that is to pass
  static constexpr std::uint32_t kPath = static_cast<std::uint32_t>(LaunchPath::Launched);
  static constexpr float kUntouched = -1;

  struct Part {
    Memory send, recv, scratch, mailbox;
  };

  void SetUp() override {
    auto opened = GetParam().open();
    ASSERT_TRUE(opened.ok()) << opened.error().to_string();
    node_ = std::move(opened).value();
    if (seat(0).hardware == seat(1).hardware && seat(0).queue == 0)
      GTEST_SKIP() << "both ranks are on one GPU, which has no queues of their own for them";
    for (Rank rank = 0; rank < kRanks; ++rank) {
      Part& part = parts_.emplace_back();
      for (const auto& [memory, bytes] : {std::pair{&part.send, kCount * sizeof(float)},
                                          {&part.recv, kCount * sizeof(float)},
                                          {&part.scratch, cuda_scratch_bytes(kRanks)},
                                          {&part.mailbox, kMailboxBytes}})
        *memory = cleared(rank, bytes);
      words(rank) = {};
      put(rank, 0);
    }
  }

  void TearDown() override {
    for (Rank rank = 0; rank < parts_.size(); ++rank) {
      for (const auto& [word, value] : held_) {
        if (word != doorbell(rank)) continue;
        EXPECT_TRUE(launcher(rank).store(word, value));
      }
      const Result<bool> idle = launcher(rank).idle(seat(rank).queue);
      if (idle && *idle) continue;
      EXPECT_TRUE(launcher(rank).abort(parts_[rank].scratch.data()));
    }
    for (Rank rank = 0; rank < parts_.size(); ++rank) {
      if (becomes_idle(rank)) continue;
      // Whatever is destroyed now would wait for it, for ever.
      std::fprintf(stderr, "what was launched on rank %u does not end\n", rank);
      std::_Exit(1);
    }
    prepared_.clear();
    more_.clear();
    parts_.clear();
    node_.reset();
  }

  const HardwareNode::Seat& seat(Rank rank) const { return node_->seat(rank); }
  GpuLauncher& launcher(Rank rank) const { return *seat(rank).hardware->launcher; }
  RankCompletion& words(Rank rank) const { return launcher(rank).words()[rank]; }
  DeviceMailbox* mailbox(Rank rank) const {
    return reinterpret_cast<DeviceMailbox*>(parts_[rank].mailbox.data());
  }
  std::uint64_t* doorbell(Rank rank) const { return &mailbox(rank)->paths[kPath].doorbell; }

  Memory cleared(Rank rank, std::uint64_t bytes) {
    auto memory = seat(rank).device->allocate(bytes);
    if (!memory) {
      std::fprintf(stderr, "%s\n", memory.error().to_string().c_str());
      std::abort();
    }
    EXPECT_TRUE(node_->clear(rank, *memory));
    return std::move(memory).value();
  }

  // Rank r's element i is base + r + i % 7; nothing of recv is.
  void put(Rank rank, float base) {
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = base + static_cast<float>(rank + i % 7);
    EXPECT_TRUE(
        node_->copy_in(rank, parts_[rank].send.data(), values.data(), kCount * sizeof(float)));
    values.assign(kCount, kUntouched);
    EXPECT_TRUE(
        node_->copy_in(rank, parts_[rank].recv.data(), values.data(), kCount * sizeof(float)));
  }
  void put_all(float base) {
    for (Rank rank = 0; rank < kRanks; ++rank) put(rank, base);
  }
  std::vector<float> floats(Rank rank, const Memory& memory) {
    std::vector<float> values(kCount);
    EXPECT_TRUE(node_->copy_out(rank, values.data(), memory.data(), kCount * sizeof(float)));
    return values;
  }
  // `times`: how often the sum was summed again.
  void expect_sums(Rank rank, float base, const Memory& memory, float times = 1) {
    const std::vector<float> values = floats(rank, memory);
    for (std::size_t i = 0; i < kCount; ++i) {
      const float sum = kRanks * (base + static_cast<float>(i % 7)) + kRanks * (kRanks - 1) / 2;
      ASSERT_EQ(values[i], times * sum) << "rank " << rank << ", element " << i;
    }
  }
  void expect_sums(float base) {
    for (Rank rank = 0; rank < kRanks; ++rank)
      ASSERT_NO_FATAL_FAILURE(expect_sums(rank, base, parts_[rank].recv));
  }
  void expect_untouched(Rank rank) {
    const std::vector<float> values = floats(rank, parts_[rank].recv);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], kUntouched) << "rank " << rank;
  }
  void expect_untouched() {
    for (Rank rank = 0; rank < kRanks; ++rank) ASSERT_NO_FATAL_FAILURE(expect_untouched(rank));
  }

  // From send into recv, or back: the rank's own part.
  CudaAllReduce call(Rank rank, std::uint32_t number = 1, bool back = false) {
    CudaAllReduce made{.done = &mailbox(rank)->paths[kPath].done,
                       .host_done = &words(rank).done,
                       .host_outcome = &words(rank).outcome,
                       .done_word = to_word(Done{.number = number}),
                       .count = kCount,
                       .timeout_ns = std::chrono::nanoseconds(kPatience).count(),
                       .rank = rank,
                       .ranks = kRanks};
    const int ordinal = seat(rank).device->ordinal();
    for (Rank other = 0; other < kRanks; ++other) {
      const Part& part = parts_[other];
      made.send[other] = (back ? part.recv : part.send).data_on(ordinal);
      made.recv[other] = (back ? part.send : part.recv).data_on(ordinal);
      made.scratch[other] = part.scratch.data();
    }
    return made;
  }
  void launch(Rank rank, const CudaAllReduce& call, std::uint32_t parity = 0) {
    const Status launched =
        launcher(rank).launch(seat(rank).queue, parity, CudaAlgorithm::OneShotLl16, call);
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  void launch_all(std::uint32_t number = 1, std::uint32_t parity = 0) {
    for (Rank rank = 0; rank < kRanks; ++rank) launch(rank, call(rank, number), parity);
  }
  // What comes behind it in the rank's queue waits for its doorbell word, until the case ends.
  void hold(Rank rank, std::uint64_t value) {
    held_.emplace_back(doorbell(rank), value);
    const Status waits = launcher(rank).wait_for(seat(rank).queue, doorbell(rank), value);
    ASSERT_TRUE(waits) << waits.error().to_string();
  }

  template <typename Condition>
  static bool eventually(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(50us);
    }
    return true;
  }
  bool is_idle(Rank rank) const {
    const Result<bool> idle = launcher(rank).idle(seat(rank).queue);
    EXPECT_TRUE(idle.ok()) << idle.error().to_string();
    return idle && *idle;
  }
  bool becomes_idle(Rank rank) const {
    return eventually([&] { return is_idle(rank); });
  }
  void expect_idle() const {
    for (Rank rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(becomes_idle(rank)) << "rank " << rank;
  }
  void expect_busy_for_a_while(Rank rank) const {
    const auto until = std::chrono::steady_clock::now() + kWhile;
    do {
      ASSERT_FALSE(is_idle(rank)) << "rank " << rank;
      std::this_thread::sleep_for(1ms);
    } while (std::chrono::steady_clock::now() < until);
  }
  std::uint64_t in_mailbox(Rank rank, const std::uint64_t& word) {
    std::uint64_t value = 0;
    EXPECT_TRUE(node_->copy_out(rank, &value, &word, sizeof(value)));
    return value;
  }
  std::uint64_t told(Rank rank) const {
    return __atomic_load_n(&words(rank).done, __ATOMIC_ACQUIRE);
  }
  CudaOutcome outcome(Rank rank) const {
    const auto* word = reinterpret_cast<const std::uint64_t*>(&words(rank).outcome);
    const std::uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    return {static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32)};
  }
  void expect_done(Rank rank, std::uint32_t number) {
    const std::uint64_t word = to_word(Done{.number = number});
    ASSERT_TRUE(eventually([&] { return told(rank) == word; })) << "rank " << rank;
    EXPECT_EQ(in_mailbox(rank, mailbox(rank)->paths[kPath].done), word);
    EXPECT_EQ(outcome(rank).code, 0U);
  }
  void expect_done(std::uint32_t number = 1) {
    for (Rank rank = 0; rank < kRanks; ++rank) ASSERT_NO_FATAL_FAILURE(expect_done(rank, number));
  }
  // No word says that an operation has ended, `number` that one before has.
  void expect_silence(Rank rank, std::uint32_t number = 0) {
    const std::uint64_t word = number == 0 ? 0 : to_word(Done{.number = number});
    EXPECT_EQ(told(rank), word);
    EXPECT_EQ(in_mailbox(rank, mailbox(rank)->paths[kPath].done), word);
    EXPECT_EQ(outcome(rank).code, 0U);
  }
  void expect_failed(Rank rank, CudaOutcomeCode code) {
    ASSERT_TRUE(eventually([&] { return outcome(rank).code != 0; }));
    EXPECT_EQ(outcome(rank).code, static_cast<std::uint32_t>(code));
    EXPECT_EQ(told(rank), 0U);
    EXPECT_EQ(in_mailbox(rank, mailbox(rank)->paths[kPath].done), 0U);
  }

  std::shared_ptr<HardwareNode> node_;
  std::vector<Part> parts_;   // by rank
  std::vector<Memory> more_;  // what single cases need
  std::vector<std::pair<std::uint64_t*, std::uint64_t>> held_;
  std::vector<std::unique_ptr<PreparedLaunch>> prepared_;  // let go when all has ended
};

}  // namespace arcomm
