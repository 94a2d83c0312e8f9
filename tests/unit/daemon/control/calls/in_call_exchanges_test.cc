// Whose quotas and control groups pay for the memory in which calls meet.
#include "daemon/control/calls/communicators/in_call_exchanges.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "daemon/telemetry/metrics/metrics.h"
#include "kernels/host/reduce_in_call.h"

namespace arcomm {
namespace {

class InCallExchangesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!host::can_reduce_in_call()) GTEST_SKIP() << "needs AVX2";
  }
  std::shared_ptr<InCallExchange> of(std::uint64_t epoch,
                                     const std::optional<std::vector<MemoryGroup>>& groups) {
    return exchanges_.of({}, epoch,
                         {.uid = 7,
                          .groups = groups,
                          .ranks = 2,
                          .bounds = {kBytes, kBytes / 2},
                          .same_tables = true});
  }

  static constexpr std::uint64_t kBytes = 4096;  // that the calls of two ranks meet for, at most
  static constexpr std::uint64_t kMemory = 8192 + 4 * 4096;

  Metrics metrics_;
  static constexpr MachineFacts kMachine{
      .descriptors = 1024, .mappings = 65'530, .memory_bytes = std::uint64_t{1} << 30};
  QuotaBook quotas_{Settings::Quota{}, kMachine, metrics_};
  ClientGroups groups_;
  InCallExchanges exchanges_{{.quotas = quotas_, .groups = groups_, .counts = metrics_.in_call}};
};

TEST_F(InCallExchangesTest, TheControlGroupOfTheProcessPaysForEveryPage) {
  const std::vector<MemoryGroup> group{{.folder = "/g", .most_bytes = kMemory + kMemory / 2}};
  std::shared_ptr<InCallExchange> first = of(1, group);
  EXPECT_TRUE(first->has_memory()) << first->why_not();
  EXPECT_EQ(groups_.held("/g"), kMemory);
  // A refusal is no failure: its operations are the worker's.
  const std::shared_ptr<InCallExchange> refused = of(2, group);
  EXPECT_FALSE(refused->has_memory());
  EXPECT_NE(refused->why_not().find("the control group /g"), std::string::npos)
      << refused->why_not();
  EXPECT_EQ(quotas_.total(QuotaKind::HostBytes), kMemory);
  first.reset();
  EXPECT_EQ(groups_.held("/g"), 0u);
  EXPECT_TRUE(of(3, group)->has_memory());
}

TEST_F(InCallExchangesTest, AProcessWhoseControlGroupsAreNotKnownGetsNone) {
  const std::shared_ptr<InCallExchange> unknown = of(1, std::nullopt);
  EXPECT_FALSE(unknown->has_memory());
  EXPECT_NE(unknown->why_not().find("have not been looked at"), std::string::npos)
      << unknown->why_not();
  EXPECT_EQ(quotas_.total(QuotaKind::HostBytes), 0u);
}

}  // namespace
}  // namespace arcomm
