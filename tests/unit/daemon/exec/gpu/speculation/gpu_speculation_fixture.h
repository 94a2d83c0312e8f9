// Ranks that call large operations again and again, so that the worker launches them ahead.
#pragma once

#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {

class GpuSpeculation : public GpuWorkerTest {
 protected:
  static constexpr std::uint64_t kOther = kLarge - 8;

  void SetUp() override { serve(10'000); }
  void serve(std::uint64_t lease_ms, bool speculative = true) {
    Settings settings;
    settings.gpu.lease_ms = lease_ms;
    settings.gpu.speculative = speculative;
    start(settings);
  }
  std::vector<PlanId> plans(const std::vector<GpuRank*>& ranks, std::uint64_t count = kLarge) {
    std::vector<PlanId> made;
    made.reserve(ranks.size());
    for (GpuRank* rank : ranks) made.push_back(plan(*rank, count));
    return made;
  }
  void call(GpuRank& rank, PlanId plan, float value) {
    rank.send()[0] = rank.send()[kOther - 1] = rank.send()[kLarge - 1] = value;
    rank.recv()[0] = rank.recv()[kOther - 1] = rank.recv()[kLarge - 1] = -1;
    rank.start(plan, LaunchPath::Launched);
  }
  void expect_sum(const std::vector<GpuRank*>& ranks, float sum, std::uint64_t count = kLarge) {
    for (const GpuRank* rank : ranks) {
      ASSERT_TRUE(rank->wait(LaunchPath::Launched));
      EXPECT_EQ(rank->recv()[0], sum);
      EXPECT_EQ(rank->recv()[count - 1], sum);
      if (count == kLarge) continue;
      EXPECT_EQ(rank->recv()[kLarge - 1], -1) << "another plan ran";
    }
  }
  void run(const std::vector<GpuRank*>& ranks, const std::vector<PlanId>& plans,
           std::uint64_t count = kLarge) {
    const auto value = static_cast<float>(++turns_);
    for (std::size_t i = 0; i < ranks.size(); ++i) call(*ranks[i], plans[i], value);
    expect_sum(ranks, value * static_cast<float>(ranks.size()), count);
  }
  // Until the next ones wait in the queues.
  void speculate(const std::vector<GpuRank*>& ranks, const std::vector<PlanId>& plans) {
    for (int i = 0; i < 3; ++i) run(ranks, plans);
    const int count = static_cast<int>(ranks.size());
    // The worker answers between two turns: once it has seen the last call end, it has had a whole
    // turn for all that it does about it when it answers again.
    ASSERT_TRUE(
        eventually([&] { return inspect().operations_pending == 0 && node_.gated >= count; }));
    inspect();
    ASSERT_EQ(node_.gated % count, 0);
    ahead_ = static_cast<std::uint64_t>(node_.gated / count);
  }
  std::uint64_t hits() const { return metrics_->speculative_hits.value(); }
  std::uint64_t misses() const { return metrics_->speculative_misses.value(); }

  int turns_ = 0;
  std::uint64_t ahead_ = 0;  // operations, after arm() of the only communicator
};

}  // namespace arcomm::test
