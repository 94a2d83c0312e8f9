// How the proxy's thread waits: it spins, then yields, then sleeps, and the time in each is
// counted; whoever has something for it wakes it.
#include "daemon/proxy/adaptive_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace arcomm::proxy {
namespace {

using namespace std::chrono_literals;

constexpr auto kNothingCame = [](bool) { return false; };

std::unique_ptr<AdaptiveWait> make(WaitPolicy policy) {
  auto wait = AdaptiveWait::create(policy);
  EXPECT_TRUE(wait);
  return std::move(*wait);
}
std::uint64_t ns_in(const AdaptiveWait& wait, WaitStage stage) {
  return wait.times().ns[static_cast<std::size_t>(stage)];
}

TEST(AdaptiveWait, ItSpinsThenYieldsThenSleepsAndCountsTheTimeInEach) {
  // Where its core is given to others it rightly leaves stages out: then once more.
  for (int tries = 0; tries < 50; ++tries) {
    const auto wait = make({.spin = 1ms, .yield = 1ms, .first_nap = 1ms, .longest_nap = 1ms});
    const std::uint64_t from = AdaptiveWait::now_ns();
    bool in_order = true;
    while (wait->times().sleeps < 3) {
      const bool has_slept = wait->times().sleeps != 0;
      const std::uint64_t spun = ns_in(*wait, WaitStage::Spin);
      wait->wait({.is_open = true}, kNothingCame);
      in_order = in_order && (!has_slept || ns_in(*wait, WaitStage::Spin) == spun);
    }
    const std::uint64_t took = AdaptiveWait::now_ns() - from;
    std::uint64_t counted = 0;
    for (const std::uint64_t ns : wait->times().ns) counted += ns;
    ASSERT_LE(counted, took);
    ASSERT_GT(ns_in(*wait, WaitStage::Sleep), 2'500'000U);
    if (ns_in(*wait, WaitStage::Spin) < 500'000 || ns_in(*wait, WaitStage::Yield) < 500'000)
      continue;
    EXPECT_TRUE(in_order);
    EXPECT_GT(counted, took / 2);
    return;
  }
  GTEST_SKIP() << "this machine never left the thread alone for 2 ms";
}

TEST(AdaptiveWait, ALookThatFindsSomethingStartsOver) {
  const auto wait = make({.spin = 0us, .yield = 0us, .first_nap = 1ms, .longest_nap = 64ms});
  for (int i = 0; i < 4; ++i) wait->wait({.is_open = true}, kNothingCame);  // 1, 2, 4 and 8 ms
  wait->moved();
  const std::uint64_t before = ns_in(*wait, WaitStage::Sleep);
  EXPECT_GT(before, 14'000'000U);
  const std::uint64_t from = AdaptiveWait::now_ns();
  wait->wait({.is_open = true}, kNothingCame);
  EXPECT_GE(ns_in(*wait, WaitStage::Sleep) - before, 900'000U);
  EXPECT_LT(AdaptiveWait::now_ns() - from, 15'000'000U) << "as long as the nap before";
}

TEST(AdaptiveWait, TheLastLookBeforeItSleepsIsBelieved) {
  const auto wait = make({.spin = 0us, .yield = 0us});
  std::vector<bool> looks;
  wait->wait({}, [&](bool asleep) {
    looks.push_back(asleep);
    return asleep;
  });
  EXPECT_EQ(looks, (std::vector<bool>{true, false}));
  EXPECT_EQ(wait->times().sleeps, 0U);
}

TEST(AdaptiveWait, ADeadlineEndsItsSleep) {
  const auto wait = make({.spin = 0us, .yield = 0us, .longest_sleep = 10s});
  const std::uint64_t from = AdaptiveWait::now_ns();
  wait->wait({.deadline_ns = from + 5'000'000}, kNothingCame);
  EXPECT_GE(AdaptiveWait::now_ns() - from, 4'900'000U);
  EXPECT_LT(AdaptiveWait::now_ns() - from, 2'000'000'000U);
}

TEST(AdaptiveWait, ARingEndsItsSleepAndIsCounted) {
  const auto wait = make({.spin = 0us, .yield = 0us, .longest_sleep = 10s});
  std::atomic<bool> is_about_to_sleep{false};
  std::thread ringer([&] {
    while (!is_about_to_sleep.load()) std::this_thread::yield();
    std::this_thread::sleep_for(5ms);
    wait->ring();
  });
  const std::uint64_t from = AdaptiveWait::now_ns();
  wait->wait({}, [&](bool asleep) {
    if (asleep) is_about_to_sleep.store(true);
    return false;
  });
  ringer.join();
  EXPECT_LT(AdaptiveWait::now_ns() - from, 5'000'000'000U);
  EXPECT_EQ(wait->times().rings, 1U);
  wait->ring();
  EXPECT_EQ(wait->times().rings, 1U) << "nobody sleeps: no system call";
}

}  // namespace
}  // namespace arcomm::proxy
