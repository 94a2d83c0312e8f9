// What daemons with links cost while nothing goes on, and how their waiting is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>

#include "tests/integration/nodes/cluster_test.h"
#include "tests/support/metrics_scrape.h"

namespace arcomm::support {
namespace {

// Processor time of all threads of a process; 0 where it cannot be read.
std::uint64_t processor_ns(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(used.tv_nsec);
}

class NodesIdle : public ClusterTest {
 protected:
  double metric(std::size_t index, std::string_view name,
                std::initializer_list<std::string_view> labels = {}) {
    return Metrics::scrape(node(index)).value(name, labels);
  }
};

TEST_F(NodesIdle, ADaemonWithALinkAndClientsThatCallNothingTakesLessThanAHundredthOfACore) {
  start(2, {{"net.streams", "4"}});  // with threads of their own, whatever the machine
  const Clients clients = start_ranks_on({0, 1});
  expect_all_ok(clients, "allreduce c0 300007 float32 sum");
  // Processor time does not grow because others compute; but what they leave in the caches, and the
  // operation before, may show in one of the windows.
  constexpr auto kWindow = std::chrono::seconds(2);
  // Instrumented code takes several times as long; what spins would take all of a core.
  const double most = 0.01 * kSlowdown * (kSanitized ? 10 : 1);
  double least = 1;
  for (int window = 0; window < 10 && least >= most; ++window) {
    const std::uint64_t before = processor_ns(node(0).pid());
    ASSERT_GT(before, 0u);
    const auto since = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(kWindow);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - since;
    const auto used = static_cast<double>(processor_ns(node(0).pid()) - before) / 1e9;
    least = std::min(least, used / took.count());
  }
  EXPECT_LT(least, most) << "of a core";
  RecordProperty("of_a_core", std::to_string(least));

  // It has slept, says so, and told how it waited otherwise.
  EXPECT_TRUE(eventually(milliseconds(20000), [this] {
    return metric(0, "arcomm_worker_wait_seconds_total", {"state=\"sleep\""}) > 1;
  }));
  EXPECT_GT(metric(0, "arcomm_worker_wait_seconds_total", {"state=\"spin\""}), 0);
  EXPECT_TRUE(eventually(milliseconds(20000), [this] {
    return metric(0, "arcomm_link_wait_seconds_total", {"state=\"sleep\""}) > 1;
  }));
  EXPECT_GT(metric(0, "arcomm_link_wait_seconds_total", {"state=\"spin\""}), 0);
  expect_all_ok(clients, "finalize");
}

TEST_F(NodesIdle, HowFastLinksDeliverIsToldByArctlAndForPrometheus) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  expect_all_ok(clients, "allreduce c0 3000007 float32 sum");
  nlohmann::json link;
  EXPECT_TRUE(eventually(milliseconds(20000), [&] {
    link = net(0).at("links").at(0);
    return link.at("delivered_bytes_per_second").get<std::uint64_t>() > 0;
  })) << link;
  EXPECT_GE(link.at("waited_for_peer_s").get<double>(), 0);
  EXPECT_TRUE(eventually(milliseconds(20000), [this] {
    return metric(0, "arcomm_link_delivered_bytes_per_second") > 0;
  }));
  EXPECT_TRUE(Metrics::scrape(node(0)).has("arcomm_link_held_up_seconds_total"));
  expect_all_ok(clients, "finalize");
}

}  // namespace
}  // namespace arcomm::support
