// Two graphs of one communicator, replayed in another order on each rank: their operations have the
// same shape, and only their identities (proto/gpu/captured_identity.h) tell that ranks mean
// different ones.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/unit/daemon/exec/gpu/speculation/gpu_speculation_fixture.h"

namespace arcomm::test {
namespace {

class GpuReordered : public GpuSpeculation {
 protected:
  static constexpr std::uint32_t kA = identity_of_captured(0), kB = identity_of_captured(1);
  static constexpr float kUntouched = -1;

  void SetUp() override { GpuWorkerTest::SetUp(); }

  void put(GpuRank& rank, PlanId plan, LaunchPath path, std::uint32_t identity, float value) {
    for (const std::uint64_t at : {std::uint64_t{0}, kSmall - 1, kLarge - 1}) {
      rank.send()[at] = value;
      rank.recv()[at] = kUntouched;
    }
    rank.start(plan, path, identity);
  }
  // Long before any deadline, and before anything is written.
  void expect_reordered(const std::vector<GpuRank*>& ranks) {
    const auto begin = std::chrono::steady_clock::now();
    const Rank culprit = static_cast<Rank>(ranks[0]->closed().culprit_rank);
    EXPECT_TRUE(culprit == 0 || culprit == 1);
    for (const GpuRank* rank : ranks) {
      const Done closed = rank->closed();
      EXPECT_EQ(name_of(error_code_from(closed.code)), name_of(ErrorCode::FailedPrecondition));
      EXPECT_EQ(name_of(reason_from(closed.reason)), name_of(Reason::Reordered));
      EXPECT_EQ(rank->recv()[0], kUntouched);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_TRUE(eventually([&] {
      for (const FlightRecord& record : recorder_->snapshot())
        if (record.reason == Reason::Reordered) return true;
      return false;
    }));
  }
  void expect_sums(const std::vector<GpuRank*>& ranks, LaunchPath path, float sum) {
    for (const GpuRank* rank : ranks) {
      ASSERT_TRUE(rank->wait(path));
      ASSERT_EQ(rank->recv()[0], sum);
    }
  }
};

TEST_F(GpuReordered, LaunchedReplaysInAnotherOrderAreNamedBeforeAnythingIsWritten) {
  const auto ranks = group(2);
  std::vector<PlanId> a = plans(ranks), b = plans(ranks);
  for (std::size_t i = 0; i < 2; ++i)
    put(*ranks[i], i == 0 ? a[i] : b[i], LaunchPath::Launched, i == 0 ? kA : kB, 1);
  expect_reordered(ranks);
  EXPECT_EQ(node_.sums, 0);
  for (const CommunicatorSnapshot& shot : inspect().communicators)
    EXPECT_NE(shot.state.find("captured as number"), std::string::npos) << shot.state;
  expect_serving(kLarge);
}

TEST_F(GpuReordered, ResidentReplaysInAnotherOrderAreNamedBeforeAnythingIsWritten) {
  const auto ranks = group(2);
  std::vector<PlanId> a = plans(ranks, kSmall), b = plans(ranks, kSmall);
  for (std::size_t i = 0; i < 2; ++i)
    put(*ranks[i], i == 0 ? a[i] : b[i], LaunchPath::Resident, i == 0 ? kA : kB, 1);
  expect_reordered(ranks);
  expect_serving(kSmall);
}

// One buffer, in place, in both graphs: nothing but the identity tells them apart.
TEST_F(GpuReordered, SoAreThoseThatShareAPlan) {
  for (const LaunchPath path : {LaunchPath::Launched, LaunchPath::Resident}) {
    const auto ranks = group(2);
    const auto same = plans(ranks, path == LaunchPath::Launched ? kLarge : kSmall);
    put(*ranks[0], same[0], path, kB, 1);
    put(*ranks[1], same[1], path, kA, 1);
    expect_reordered(ranks);
  }
}

TEST_F(GpuReordered, ACallThatMeetsAReplayIsNamed) {
  for (const LaunchPath path : {LaunchPath::Launched, LaunchPath::Resident}) {
    const auto ranks = group(2);
    const auto same = plans(ranks, path == LaunchPath::Launched ? kLarge : kSmall);
    put(*ranks[0], same[0], path, kNoIdentity, 1);
    put(*ranks[1], same[1], path, kA, 1);
    expect_reordered(ranks);
  }
}

TEST_F(GpuReordered, ReplaysInOneOrderRunManyTimesBetweenCalls) {
  const auto ranks = group(3);
  for (const LaunchPath path : {LaunchPath::Launched, LaunchPath::Resident}) {
    const auto count = path == LaunchPath::Launched ? kLarge : kSmall;
    const std::vector<PlanId> a = plans(ranks, count), b = plans(ranks, count);
    std::uint32_t random = 1;
    for (int turn = 0; turn < 30; ++turn) {
      random = random * 1'664'525 + 1'013'904'223;
      const std::uint32_t which = random >> 30;  // a, b, either called
      const auto value = static_cast<float>(turn + 1);
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        put(*ranks[i], which % 2 == 0 ? a[i] : b[i], path,
            which >= 2   ? kNoIdentity
            : which == 0 ? kA
                         : kB,
            value);
      }
      ASSERT_NO_FATAL_FAILURE(expect_sums(ranks, path, 3 * value));
    }
  }
}

// What waits behind a gate must not take another replay's doorbell for its own: it would run
// before the worker had compared anything.
TEST_F(GpuReordered, WhatWasLaunchedAheadRunsForNoOtherReplay) {
  serve(10'000);
  const auto ranks = group(2);
  const auto same = plans(ranks);
  const auto run_both = [&](int times) {
    for (int i = 0; i < times; ++i) {
      for (const std::uint32_t identity : {kA, kB}) {
        for (std::size_t r = 0; r < 2; ++r)
          put(*ranks[r], same[r], LaunchPath::Launched, identity, 1);
        ASSERT_NO_FATAL_FAILURE(expect_sums(ranks, LaunchPath::Launched, 2));
      }
    }
  };
  run_both(10);
  ASSERT_TRUE(eventually([&] { return hits() >= 4 && node_.gated >= 2; })) << hits();
  const int sums = node_.sums;
  put(*ranks[0], same[0], LaunchPath::Launched, kA, 1);
  put(*ranks[1], same[1], LaunchPath::Launched, kB, 1);
  expect_reordered(ranks);
  EXPECT_EQ(node_.sums, sums);
  expect_serving(kLarge, 5);
}

// As they follow each other in a graph they are launched speculatively, though all have one plan.
TEST_F(GpuReordered, ReplaysAreLaunchedSpeculativelyByWhatTheyAre) {
  serve(10'000);
  const auto ranks = group(2);
  const auto same = plans(ranks), other = plans(ranks, kOther);
  for (int i = 0; i < 20; ++i) {
    for (const std::uint32_t identity : {kA, kB}) {
      for (std::size_t r = 0; r < 2; ++r)
        put(*ranks[r], same[r], LaunchPath::Launched, identity, 1);
      expect_sums(ranks, LaunchPath::Launched, 2);
    }
    run(ranks, other, kOther);
  }
  EXPECT_GE(hits(), 20u);
  EXPECT_EQ(misses(), 0u);
}

}  // namespace
}  // namespace arcomm::test
