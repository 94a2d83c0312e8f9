#include "daemon/telemetry/metrics/metrics.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, FoldsWhatManyThreadsAdded) {
  Metrics metrics;
  std::vector<std::thread> threads;
  threads.reserve(12);
  for (int t = 0; t < 12; ++t)
    threads.emplace_back([&metrics] {
      for (int i = 0; i < 1000; ++i) metrics.count_operation(ErrorCode::Ok, 1500, 4096);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(metrics.operations[ErrorCode::Ok].value(), 12'000u);
  EXPECT_EQ(metrics.operations.total(), 12'000u);
  EXPECT_EQ(metrics.bytes_reduced.value(), 12'000u * 4096);
  EXPECT_EQ(metrics.operation_duration.fold().count, 12'000u);
}

TEST(Metrics, CountsBytesOnlyOfOperationsThatSucceeded) {
  Metrics metrics;
  metrics.count_operation(ErrorCode::DeadlineExceeded, 10, 4096);
  EXPECT_EQ(metrics.bytes_reduced.value(), 0u);
  EXPECT_EQ(metrics.operations[ErrorCode::DeadlineExceeded].value(), 1u);
}

TEST(Metrics, CoversEveryCodeAndReasonThereIs) {
  EXPECT_EQ(error_code_from(kErrorCodes - 1), ErrorCode::Unauthenticated);
  EXPECT_EQ(static_cast<std::size_t>(ErrorCode::Unauthenticated) + 1, kErrorCodes);
  EXPECT_EQ(static_cast<std::size_t>(Reason::Reordered) + 1, kReasons);
}

TEST(DurationHistogram, PutsEachDurationIntoTheFirstBucketThatHoldsIt) {
  const auto bucket_of = [](std::uint64_t ns) {
    DurationHistogram histogram;
    histogram.observe_ns(ns);
    const auto folded = histogram.fold();
    for (std::size_t i = 0; i < DurationHistogram::kBuckets; ++i)
      if (folded.buckets[i] != 0) return i;
    return DurationHistogram::kBuckets;
  };
  EXPECT_EQ(bucket_of(0), 0u);
  EXPECT_EQ(bucket_of(1000), 0u);
  EXPECT_EQ(bucket_of(1001), 1u);
  EXPECT_EQ(bucket_of(2000), 1u);
  EXPECT_EQ(bucket_of(2001), 2u);
  EXPECT_EQ(bucket_of(4000), 2u);
  EXPECT_EQ(bucket_of((1ull << 25) * 1000), 25u);
  EXPECT_EQ(bucket_of((1ull << 25) * 1000 + 1), 26u);
  EXPECT_EQ(bucket_of(~0ull), 26u);
}

TEST(DurationHistogram, TellsQuantilesByTheirBucket) {
  DurationHistogram histogram;
  EXPECT_EQ(histogram.fold().quantile_seconds(0.5), 0.0);
  for (int i = 0; i < 99; ++i) histogram.observe_ns(3000);
  histogram.observe_ns(1'000'000);
  EXPECT_DOUBLE_EQ(histogram.fold().quantile_seconds(0.5), 4e-6);
  EXPECT_DOUBLE_EQ(histogram.fold().quantile_seconds(1.0), 1024e-6);
  EXPECT_NEAR(histogram.fold().sum_seconds, 99 * 3e-6 + 1e-3, 1e-9);
}

TEST(MetricsText, TellsValuesInBaseUnitsUnderTheirNames) {
  Metrics metrics;
  metrics.count_operation(ErrorCode::Ok, 2'000'000, 1 << 20);
  metrics.count_rejected(Reason::OutOfBounds);
  metrics.sessions.add(3);
  metrics.sessions.add(-1);
  metrics.sessions_lost[Reason::RemoteDied].add();
  metrics.worker_busy_ns.add(1'500'000'000);
  metrics.worker_wait_ns[Waiting::Yield].add(2'500'000'000);
  metrics.link_wait_ns[Waiting::Sleep].add(500'000'000);
  metrics.link_waited_for_peer_us.add(1'500'000);
  metrics.link_delivered_bytes_per_second.set(4'000'000'000);
  for (const std::uint64_t turn_ns : {1'000, 2'500'000, 30'000})
    metrics.worker_turn_ns.note(turn_ns);
  metrics.config_reloads_failed.add();
  const std::string text = render_metrics(metrics);
  for (const char* line : {"arcomm_operations_total{code=\"Ok\"} 1\n",
                           "arcomm_operations_total{code=\"Internal\"} 0\n",
                           "# TYPE arcomm_operation_duration_seconds histogram\n",
                           "arcomm_operation_duration_seconds_bucket{le=\"+Inf\"} 1\n",
                           "arcomm_operation_duration_seconds_count 1\n",
                           "arcomm_bytes_reduced_total 1048576\n",
                           "arcomm_rejected_total{reason=\"OutOfBounds\"} 1\n",
                           "arcomm_sessions 2\n",
                           "arcomm_sessions_lost_total{reason=\"RemoteDied\"} 1\n",
                           "arcomm_worker_busy_seconds_total 1.5\n",
                           "arcomm_worker_turn_max_seconds 0.0025\n",
                           "arcomm_worker_wait_seconds_total{state=\"spin\"} 0\n",
                           "arcomm_worker_wait_seconds_total{state=\"yield\"} 2.5\n",
                           "arcomm_link_wait_seconds_total{state=\"sleep\"} 0.5\n",
                           "arcomm_link_held_up_seconds_total{by=\"peer\"} 1.5\n",
                           "arcomm_link_held_up_seconds_total{by=\"buffer\"} 0\n",
                           "arcomm_link_delivered_bytes_per_second 4000000000\n",
                           "arcomm_config_reloads_total{result=\"error\"} 1\n",
                           "arcomm_net_dropped_total{reason=\"never_formed\"} 0\n",
                           "arcomm_log_lines_dropped_total ",
                           "arcomm_log_lines_left_out_total ",
                           "arcomm_build_info{version=\"0.1.0\"} 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

}  // namespace
}  // namespace arcomm
