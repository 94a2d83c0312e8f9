// Thousands of orders in which kernels, proxies and wires may move, each from a seed. One that goes
// wrong is printed as a line of numbers, made as small as it goes; ARCOMM_PROXY_PLAN="..." runs
// that one again, ARCOMM_PROXY_SEEDS="first count" others than those of every run.
#include "tests/unit/daemon/proxy/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

namespace arcomm::proxy {
namespace {

TEST(ProxySchedule, EverySeedEndsAndNoWrongSumIsReportedAsSuccess) {
  if (const char* text = std::getenv("ARCOMM_PROXY_PLAN"); text != nullptr) {
    const Outcome outcome = run_schedule(SchedulePlan::read(text));
    EXPECT_EQ(outcome.wrong, "") << "after " << outcome.turns << " turns";
    return;
  }
  std::uint64_t first = 1, seeds = 1000;
  if (const char* text = std::getenv("ARCOMM_PROXY_SEEDS"); text != nullptr)
    std::istringstream(text) >> first >> seeds;
  std::uint64_t turns = 0, succeeded = 0, failed = 0, longest = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const SchedulePlan plan = SchedulePlan::draw(seed);
    const Outcome outcome = run_schedule(plan);
    turns += outcome.turns;
    longest = std::max(longest, outcome.turns);
    succeeded += outcome.succeeded;
    failed += outcome.failed;
    if (outcome.wrong.empty()) continue;
    const SchedulePlan small = shrink(plan);
    FAIL() << outcome.wrong << "\n  ARCOMM_PROXY_PLAN=\"" << plan.text()
           << "\"\n  smallest: " << run_schedule(small).wrong << "\n  ARCOMM_PROXY_PLAN=\""
           << small.text() << '"';
  }
  std::printf(
      "%llu schedules, %llu turns (the longest %llu); %llu operations succeeded, %llu failed\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(turns),
      static_cast<unsigned long long>(longest), static_cast<unsigned long long>(succeeded),
      static_cast<unsigned long long>(failed));
  EXPECT_GT(succeeded, failed);
  EXPECT_GT(failed, 0U);
}

TEST(ProxySchedule, APlanRunsTheSameAgainFromItsText) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    const SchedulePlan plan = SchedulePlan::draw(seed);
    const Outcome once = run_schedule(plan), again = run_schedule(SchedulePlan::read(plan.text()));
    EXPECT_EQ(once.turns, again.turns);
    EXPECT_EQ(once.succeeded, again.succeeded);
    EXPECT_EQ(once.wrong, again.wrong);
  }
}

}  // namespace
}  // namespace arcomm::proxy
