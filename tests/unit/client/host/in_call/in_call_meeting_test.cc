#include "client/src/host/in_call/in_call_meeting.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/client/host/in_call/turns.h"

namespace arcomm::client {
namespace {

// A step of one rank's: before each access of the meeting's.
struct Step {
  Turns* turns = nullptr;
  std::uint32_t rank = 0;
  void operator()() const { turns->step(rank); }
};
using Meeting = InCallMeeting<Step>;

constexpr std::uint32_t kOperations = 6;
constexpr std::uint32_t kForever = 1'000'000;  // looks

struct Plan {
  bool goes_to_worker = false;  // at once, as who calls asynchronously
  std::uint32_t patience = 0;   // looks
  std::uint64_t count = 4;      // elements: another one is a mismatch
};

// Ranks of a communicator that run operations as InCallPath does, with the worker's part played by
// a board on which all must come.
class World {
 public:
  using Fates = std::vector<InCallFate>;  // by operation

  World(std::uint32_t ranks, std::uint64_t seed)
      : ranks_(ranks),
        turns_(ranks, seed),
        control_(std::make_unique<InCallControl>()),
        areas_(ranks),
        fates_(ranks),
        board_(kOperations + 1) {}

  void run(const std::vector<std::array<Plan, kOperations>>& plans) {
    turns_.run([&](std::uint32_t rank) {
      for (std::uint32_t i = 0; i < kOperations; ++i) call(rank, i, plans[rank][i]);
    });
  }
  const Fates& fates(std::uint32_t rank) const { return fates_[rank]; }
  std::uint32_t overwritten() const { return overwritten_; }

 private:
  struct Own {
    std::uint64_t run_here = 0, at_worker = 0;
    std::array<std::uint64_t, 2> areas{};  // what it sends
  };
  static std::uint64_t value(std::uint32_t rank, std::uint32_t operation) {
    return 1000 * (rank + 1) + operation;
  }

  void call(std::uint32_t rank, std::uint32_t operation, const Plan& plan) {
    Own& own = areas_[rank];
    const std::uint64_t number = own.run_here + own.at_worker + 1;
    const auto turn = static_cast<std::uint32_t>(own.run_here % 2);
    if (meet(rank, number, turn, operation, plan) == InCallFate::InCall) {
      for (std::uint32_t other = 0; other < ranks_; ++other) {
        turns_.step(rank);
        if (areas_[other].areas[turn] != value(other, operation)) ++overwritten_;
      }
      ++own.run_here;
      fates_[rank].push_back(InCallFate::InCall);
      return;
    }
    ++own.at_worker;
    turns_.step(rank);
    control_->ranks[rank].by_worker.store(number);
    ++board_[operation];
    // Bounded: that all come is what is tested.
    for (int looks = 0; board_[operation] < ranks_ && looks < 100'000; ++looks) turns_.step(rank);
    EXPECT_EQ(board_[operation], ranks_) << "rank " << rank << " waits at the worker alone";
    fates_[rank].push_back(InCallFate::Worker);
  }

  InCallFate meet(std::uint32_t rank, std::uint64_t number, std::uint32_t turn,
                  std::uint32_t operation, const Plan& plan) {
    if (plan.goes_to_worker) return InCallFate::Worker;
    Meeting meeting(*control_, rank, ranks_, number, turn, Step{&turns_, rank});
    if (meeting.is_contested()) return InCallFate::Worker;
    turns_.step(rank);
    areas_[rank].areas[turn] = value(rank, operation);
    meeting.come(all_reduce_of(plan.count));
    for (std::uint32_t looks = 0; looks <= plan.patience; ++looks) {
      const Meeting::Seen seen = meeting.look();
      if (seen == Meeting::Seen::All) return meeting.settle();
      if (seen == Meeting::Seen::Otherwise) break;
    }
    return meeting.contest();
  }

  const std::uint32_t ranks_;
  Turns turns_;
  std::unique_ptr<InCallControl> control_;
  std::vector<Own> areas_;
  std::vector<Fates> fates_;
  std::vector<std::uint32_t> board_;  // ranks that have come, by operation
  std::uint32_t overwritten_ = 0;     // parts that were not there when they were read
};

TEST(InCallMeeting, RanksThatAllComeAndWaitMeetInTheCall) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto ranks = static_cast<std::uint32_t>(2 + seed % 3);
    World world(ranks, seed);
    std::vector<std::array<Plan, kOperations>> plans(ranks);
    for (auto& own : plans) own.fill({.patience = kForever});
    world.run(plans);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(world.fates(rank), World::Fates(kOperations, InCallFate::InCall)) << seed;
    EXPECT_EQ(world.overwritten(), 0u) << seed;
  }
}

TEST(InCallMeeting, EveryOperationHasOneFateInWhateverOrderRanksComeAndLoseTheirPatience) {
  std::uint32_t met = 0, by_worker = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    std::mt19937_64 random(seed);
    const auto ranks = static_cast<std::uint32_t>(2 + seed % 3);
    std::vector<std::array<Plan, kOperations>> plans(ranks);
    for (auto& own : plans) {
      for (Plan& plan : own)
        plan = {.goes_to_worker = random() % 12 == 0,
                .patience =
                    static_cast<std::uint32_t>(random() % 4 == 0 ? random() % 3 : random() % 40),
                .count = random() % 25 == 0 ? 5u : 4u};
    }
    World world(ranks, seed);
    world.run(plans);
    for (std::uint32_t rank = 1; rank < ranks; ++rank)
      ASSERT_EQ(world.fates(rank), world.fates(0)) << "seed " << seed << ", rank " << rank;
    ASSERT_EQ(world.overwritten(), 0u) << "seed " << seed;
    for (std::uint32_t i = 0; i < kOperations; ++i) {
      bool alike = true;
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        alike &= !plans[rank][i].goes_to_worker && plans[rank][i].count == plans[0][i].count;
      const bool is_in_call = world.fates(0)[i] == InCallFate::InCall;
      ASSERT_TRUE(alike || !is_in_call) << "seed " << seed << ", operation " << i;
      ++(is_in_call ? met : by_worker);
    }
  }
  EXPECT_GT(met, 300u);
  EXPECT_GT(by_worker, 300u);
}

// On the cores as they come, for ThreadSanitizer: parts are read only when they are there, and
// written when nobody reads them any more.
TEST(InCallMeeting, PartsAreHandedOverInOrderBetweenThreads) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint64_t kCalls = 3000;
  const auto control = std::make_unique<InCallControl>();
  std::vector<std::array<std::uint64_t, 2>> areas(kRanks);
  std::vector<std::atomic<std::uint32_t>> board(kCalls);
  std::atomic<std::uint64_t> wrong{0}, met{0};
  const auto rank_runs = [&](std::uint32_t rank) {
    std::mt19937_64 random(rank);
    std::uint64_t run_here = 0;
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      const std::uint32_t turn = run_here % 2 == 0 ? 0 : 1;
      auto fate = InCallFate::Worker;
      InCallMeeting<> meeting(*control, rank, kRanks, call + 1, turn);
      if (random() % 50 != 0 && !meeting.is_contested()) {
        areas[rank][turn] = 1000 * call + rank;
        meeting.come(all_reduce_of(4));
        auto seen = InCallMeeting<>::Seen::NotAll;
        for (std::uint64_t left = random() % 20000;
             seen == InCallMeeting<>::Seen::NotAll && left != 0; --left) {
          if (left % 64 == 0) std::this_thread::yield();
          seen = meeting.look();
        }
        fate = seen == InCallMeeting<>::Seen::All ? meeting.settle() : meeting.contest();
      }
      if (fate == InCallFate::InCall) {
        for (std::uint32_t other = 0; other < kRanks; ++other)
          wrong += areas[other][turn] == 1000 * call + other ? 0 : 1;
        ++run_here;
        ++met;
        continue;
      }
      control->ranks[rank].by_worker.store(call + 1, std::memory_order_release);
      ++board[call];
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (board[call] < kRanks) {
        if (std::chrono::steady_clock::now() > until) return void(++wrong);
        std::this_thread::yield();
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(rank_runs, rank);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(met, 0u);
}

TEST(InCallMeeting, WhatAHostileMemberWritesOnlyMakesOperationsGoToTheWorker) {
  const OperationSpec spec = all_reduce_of(4);
  const auto fate_with = [&](auto spoil) {
    const auto control = std::make_unique<InCallControl>();
    spoil(*control);
    InCallMeeting<> meeting(*control, 0, 2, 7, 0);
    meeting.come(spec);
    return meeting.look() == InCallMeeting<>::Seen::All ? meeting.settle() : meeting.contest();
  };
  const auto come = [&](InCallControl& its, std::uint64_t number) {
    its.ranks[1].heads[0].what = in_call_word(spec);
    its.ranks[1].heads[0].count = spec.send_count;
    its.ranks[1].heads[0].number = number;
  };
  EXPECT_EQ(fate_with([&](InCallControl& its) { come(its, 7); }), InCallFate::InCall);
  EXPECT_EQ(fate_with([&](InCallControl& its) { come(its, ~0ull); }), InCallFate::Worker);
  EXPECT_EQ(fate_with([&](InCallControl& its) {
              come(its, 7);
              its.contested = ~0ull;
              its.fates[7 % 4] = ~0ull;
            }),
            InCallFate::Worker);
  EXPECT_EQ(fate_with([&](InCallControl& its) {
              come(its, 7);
              its.contested = 7;
              its.fates[7 % 4] = in_call_fate(7, InCallFate::Worker);
            }),
            InCallFate::Worker);
  EXPECT_EQ(fate_with([&](InCallControl& its) { its.ranks[1].by_worker = ~0ull; }),
            InCallFate::Worker);
}

}  // namespace
}  // namespace arcomm::client
