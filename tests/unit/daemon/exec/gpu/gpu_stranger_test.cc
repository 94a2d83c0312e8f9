// What a client writes where the worker reads, and beside: its mailbox and HostPages, any bytes at
// any time. Only its own communicator may suffer.
#include <random>

#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

// Words that mean nothing, or nearly something: the next numbers and few plans, as doorbells have
// them. Thread: its own, until it is destroyed.
class Scribbler {
 public:
  Scribbler(std::vector<GpuRank*> ranks, std::uint32_t seed)
      : ranks_(std::move(ranks)), random_(seed), thread_([this] { scribble(); }) {}
  ~Scribbler() {
    stop_ = true;
    thread_.join();
  }
  Scribbler(const Scribbler&) = delete;
  Scribbler& operator=(const Scribbler&) = delete;

 private:
  void scribble() {
    while (!stop_) {
      for (const GpuRank* rank : ranks_) {
        write_somewhere(rank->mailbox.as<std::uint64_t>(), sizeof(DeviceMailbox));
        write_somewhere(rank->doorbells.as<std::uint64_t>(), sizeof(HostDoorbells));
        write_somewhere(rank->doorbells.as<std::uint64_t>(), sizeof(HostPages));
      }
    }
  }
  void write_somewhere(std::uint64_t* words, std::size_t bytes) {
    const auto few = [this](std::uint32_t most) {
      return static_cast<std::uint32_t>(random_() % most);
    };
    const std::uint64_t word =
        few(2) == 0 ? random_() : to_word(Doorbell{.number = few(4), .plan = few(8)});
    store_word(words[random_() % (bytes / sizeof(word))], word);
  }

  std::vector<GpuRank*> ranks_;
  std::mt19937_64 random_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class GpuStranger : public GpuWorkerTest {
 protected:
  void close(const GpuRank& rank) {
    const Result<void> closed = await<void>([&](auto done) {
      worker_->close_session(rank.client->id(), Reason::RemoteDied, "killed", done);
    });
    EXPECT_TRUE(closed.ok());
  }
};

TEST_F(GpuStranger, WhatHeWritesIntoHisMailboxesAndPagesEndsNobodyElsesOperations) {
  constexpr int kStrangers = 12, kRounds = 8;
  const auto ranks = group(2);
  PlanId small[2], large[2];
  for (std::size_t i = 0; i < 2; ++i) {
    small[i] = plan(*ranks[i], kSmall);
    large[i] = plan(*ranks[i], kLarge);
  }
  for (std::uint32_t stranger = 0; stranger < kStrangers; ++stranger) {
    const auto his = group(2);
    for (GpuRank* one : his) {
      static_cast<void>(plan(*one, kSmall));
      static_cast<void>(plan(*one, kLarge));
    }
    {
      const Scribbler scribbler(his, stranger);
      for (int round = 0; round < kRounds; ++round) {
        const bool is_small = round % 2 == 0;
        const LaunchPath path = is_small ? LaunchPath::Resident : LaunchPath::Launched;
        const std::uint64_t count = is_small ? kSmall : kLarge;
        for (std::size_t i = 0; i < 2; ++i) {
          ranks[i]->send()[0] = ranks[i]->send()[count - 1] = static_cast<float>(round + 1);
          ranks[i]->start((is_small ? small : large)[i], path);
        }
        for (const GpuRank* rank : ranks) {
          ASSERT_TRUE(rank->wait(path)) << "beside stranger " << stranger;
          ASSERT_EQ(rank->recv()[0], static_cast<float>(2 * round + 2));
          ASSERT_EQ(rank->recv()[count - 1], static_cast<float>(2 * round + 2));
        }
      }
      inspect();
    }
    for (const GpuRank* one : his) close(*one);
  }
  EXPECT_FALSE(ended_) << "the worker went";
  EXPECT_TRUE(eventually([&] { return inspect().communicators.size() == 1; }));
  expect_serving(kLarge);
}

}  // namespace
}  // namespace arcomm::test
