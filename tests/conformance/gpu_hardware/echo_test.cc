// What GpuLauncher promises of launch_flag_echo(): questions one after the other, and an end that
// comes whatever the CPU does.
#include "tests/conformance/gpu_hardware/fixture.h"

namespace arcomm {
namespace {

class GpuEchoConformance : public GpuHardwareConformance {
 protected:
  // Nothing of an earlier one is left.
  void launch_echo(Rank rank, std::uint64_t times, std::chrono::nanoseconds timeout) {
    FlagEchoWords& words = launcher(rank).flag_echo_words();
    words = {};
    const Status launched = launcher(rank).launch_flag_echo(
        seat(rank).queue, {.words = &words,
                           .times = times,
                           .timeout_ns = static_cast<std::uint64_t>(timeout.count())});
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  std::uint64_t asked(Rank rank) {
    return __atomic_load_n(&launcher(rank).flag_echo_words().asked, __ATOMIC_ACQUIRE);
  }
  FlagEchoEnd ended(Rank rank) {
    return static_cast<FlagEchoEnd>(
        __atomic_load_n(&launcher(rank).flag_echo_words().ended, __ATOMIC_ACQUIRE));
  }
  void answer(Rank rank, std::uint64_t number) {
    __atomic_store_n(&launcher(rank).flag_echo_words().answered, number, __ATOMIC_RELEASE);
  }
  void expect_end(Rank rank, FlagEchoEnd how) {
    ASSERT_TRUE(eventually([&] { return ended(rank) != FlagEchoEnd::Runs; }));
    EXPECT_EQ(ended(rank), how);
    ASSERT_TRUE(becomes_idle(rank));
  }
};

TEST_P(GpuEchoConformance, EachQuestionComesOnceTheOneBeforeItWasAnswered) {
  constexpr std::uint64_t kTimes = 100;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ASSERT_NO_FATAL_FAILURE(launch_echo(rank, kTimes, kPatience));
    for (std::uint64_t number = 1; number <= kTimes; ++number) {
      ASSERT_TRUE(eventually([&] { return asked(rank) == number; })) << number;
      EXPECT_EQ(ended(rank), FlagEchoEnd::Runs);
      answer(rank, number);
    }
    expect_end(rank, FlagEchoEnd::Answered);
    EXPECT_EQ(asked(rank), kTimes);
  }
}

TEST_P(GpuEchoConformance, ACpuThatDoesNotAnswerIsNotWaitedForLonger) {
  ASSERT_NO_FATAL_FAILURE(launch_echo(0, 10, 1s));  // long enough for one answer
  ASSERT_TRUE(eventually([&] { return asked(0) == 1; }));
  answer(0, 1);
  expect_end(0, FlagEchoEnd::TimedOut);
  EXPECT_EQ(asked(0), 2U);
}

TEST_P(GpuEchoConformance, WhoIsToldToStopEndsAtOnceAlsoBeforeItHasBegun) {
  ASSERT_NO_FATAL_FAILURE(launch_echo(0, 10, kPatience));
  ASSERT_TRUE(eventually([&] { return asked(0) == 1; }));
  answer(0, kStopEcho);
  expect_end(0, FlagEchoEnd::Stopped);
  if (seat(0).queue == 0) return;  // nothing can be held there
  hold(0, 7);
  ASSERT_NO_FATAL_FAILURE(launch_echo(0, 10, kPatience));
  answer(0, kStopEcho);
  expect_busy_for_a_while(0);
  EXPECT_TRUE(launcher(0).store(doorbell(0), 7));
  expect_end(0, FlagEchoEnd::Stopped);
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuEchoConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
