// What the daemon counts. Adding is one relaxed atomic addition to a cell of the caller's thread:
// no lock, no allocation. Reading folds the cells; a reader sees each cell as it is at that moment.
// Thread: all functions from any thread. Values are in base units: seconds, bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/telemetry/metrics/in_call_counts.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

// As fine as a double is told: 2^53 ns are 104 days of busy time.
inline constexpr double kNsPerSecond = 1e9;
inline constexpr std::size_t kMetricCells = 8;
inline constexpr std::size_t kErrorCodes = 17;
inline constexpr std::size_t kReasons = 24;

// The calling thread's cell: threads are dealt out in turn, so that a few workers do not share a
// cache line.
std::size_t metric_cell();

// Only grows.
class Counter {
 public:
  void add(std::uint64_t amount = 1) {
    cells_[metric_cell()].value.fetch_add(amount, std::memory_order_relaxed);
  }
  std::uint64_t value() const {
    std::uint64_t sum = 0;
    for (const Cell& cell : cells_) sum += cell.value.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> value{0};
  };
  std::array<Cell, kMetricCells> cells_{};
};

// Goes up and down.
class Gauge {
 public:
  void add(std::int64_t amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void set(std::int64_t value) { value_.store(value, std::memory_order_relaxed); }
  std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

// The highest value so far. Noting one that is no higher is a relaxed load.
class Highest {
 public:
  void note(std::uint64_t value) {
    std::uint64_t seen = value_.load(std::memory_order_relaxed);
    while (value > seen && !value_.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// One counter per value of an enum: rejected[Reason::Quota].add().
template <typename Enum, std::size_t N>
class CounterBy {
 public:
  Counter& operator[](Enum which) { return counters_[index(which)]; }
  const Counter& operator[](Enum which) const { return counters_[index(which)]; }
  static constexpr std::size_t size() { return N; }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const Counter& counter : counters_) sum += counter.value();
    return sum;
  }

 private:
  static std::size_t index(Enum which) {
    const auto i = static_cast<std::size_t>(which);
    return i < N ? i : 0;
  }
  std::array<Counter, N> counters_{};
};

// Durations in fixed buckets: 1, 2, 4, ... us up to 2^25 us (34 s), and beyond.
class DurationHistogram {
 public:
  static constexpr std::size_t kBounds = 26;  // upper bound of bucket i: 2^i us, inclusive
  static constexpr std::size_t kBuckets = kBounds + 1;

  struct Folded {
    std::array<std::uint64_t, kBuckets> buckets{};  // not cumulative
    std::uint64_t count = 0;
    double sum_seconds = 0;
    // The upper bound of the bucket in which the quantile lies; 0 when nothing was observed.
    double quantile_seconds(double q) const;
  };

  void observe_ns(std::uint64_t duration_ns);
  Folded fold() const;
  static double bound_seconds(std::size_t bucket);

 private:
  struct alignas(64) Cell {
    std::array<std::atomic<std::uint64_t>, kBuckets> buckets{};
    std::atomic<std::uint64_t> sum_ns{0};
  };
  std::array<Cell, kMetricCells> cells_{};
};

// What there is a limit of for all users together.
enum class NodeResource : std::uint8_t {
  Sessions,
  CommunicatorRanks,
  HostBytes,
  Mappings,
  Plans,
  DevicePlans,
  Connections,
  Calls,
  GpuCommunicators,  // of all GPUs together, as the two below
  GpuRanks,
  GpuBytes
};
inline constexpr std::size_t kNodeResources = 11;
std::string_view text_of(NodeResource resource);  // "sessions"
struct NodeGauges {
  Gauge used, limit;
};

// Why something that came from other daemons was let go of.
enum class NetDrop : std::uint8_t {
  Ended,        // a message for a communicator that is over
  NeverFormed,  // one that was kept for a communicator that has not come
  TooMany,      // more than is kept before a communicator is formed
  OtherEpoch,   // a message of another epoch
  Late,         // data for memory that is not waiting for any
  Damaged,      // data that did not fit their checksum
};
inline constexpr std::size_t kNetDrops = 6;
std::string_view text_of(NetDrop why);  // "ended"

// How a thread waits for work: looking in vain, offering its core to others, asleep.
enum class Waiting : std::uint8_t { Spin, Yield, Sleep };
inline constexpr std::size_t kWaitings = 3;
std::string_view text_of(Waiting how);  // "spin"
using NetDropCounts = std::array<std::uint64_t, kNetDrops>;

class Metrics {
 public:
  // One finished operation of one rank: its code, the time from submission to completion, and the
  // bytes of its buffer (count x element size) when it succeeded.
  void count_operation(ErrorCode code, std::uint64_t duration_ns, std::uint64_t bytes) {
    operations[code].add();
    operation_duration.observe_ns(duration_ns);
    if (code == ErrorCode::Ok) bytes_reduced.add(bytes);
  }
  // A request that was refused before it became an operation.
  void count_rejected(Reason reason) { rejected[reason].add(); }

  CounterBy<ErrorCode, kErrorCodes> operations;  // arcomm_operations_total{code}
  InCallCounts in_call;                          // arcomm_in_call_operations_total
  CounterBy<Codec, kCodecs> coded;               // arcomm_coded_operations_total{codec}
  CounterBy<Codec, kCodecs> of_error_class;      // arcomm_error_class_operations_total{codec}
  DurationHistogram operation_duration;          // arcomm_operation_duration_seconds
  Counter bytes_reduced;                         // arcomm_bytes_reduced_total
  CounterBy<Reason, kReasons> rejected;          // arcomm_rejected_total{reason}
  Gauge operations_in_flight;                    // arcomm_operations_in_flight

  Gauge sessions;           // arcomm_sessions
  Counter sessions_opened;  // arcomm_sessions_opened_total
  CounterBy<Reason, kReasons>
      sessions_lost;    // arcomm_sessions_lost_total{reason}; an orderly end is no loss
  Gauge communicators;  // arcomm_communicators
  CounterBy<Reason, kReasons> communicators_revoked;  // arcomm_communicators_revoked_total{reason}
  Gauge registered_bytes;                             // arcomm_registered_bytes
  Gauge buffers;                                      // arcomm_buffers
  Gauge plans;                                        // arcomm_plans
  // arcomm_node_used{resource}, arcomm_node_limit{resource}
  std::array<NodeGauges, kNodeResources> of_node;
  NodeGauges& node(NodeResource resource) { return of_node[static_cast<std::size_t>(resource)]; }

  Counter worker_busy_ns;  // arcomm_worker_busy_seconds_total
  Counter worker_sleeps;   // arcomm_worker_sleeps_total
  // arcomm_worker_wait_seconds_total{state}; up to a second late. With the busy time it is all.
  CounterBy<Waiting, kWaitings> worker_wait_ns;
  Highest worker_turn_ns;      // arcomm_worker_turn_max_seconds, of all workers
  Counter speculative_hits;    // arcomm_speculative_launches_total{result="hit"}
  Counter speculative_misses;  // arcomm_speculative_launches_total{result="miss"}
  CounterBy<ErrorCode, kErrorCodes> control_calls;  // arcomm_control_calls_total{code}
  Counter connections_refused;                      // arcomm_connections_refused_total
  Counter connections_flooding;                     // arcomm_connections_flooding_total
  // Other daemons: arcomm_peers{state}, arcomm_peers_lost_total, arcomm_links,
  // arcomm_links_opened_total, arcomm_links_lost_total, and of all links together since the start
  // arcomm_link_sent_bytes_total, arcomm_link_received_bytes_total, arcomm_link_retransmits_total.
  Gauge peers_alive, peers_unreachable, peers_refused, links;
  Counter peers_lost, links_opened, links_lost;
  Counter link_sent_bytes, link_received_bytes, link_retransmits;
  // arcomm_link_delivered_bytes_per_second, of all links there are, and
  // arcomm_link_held_up_seconds_total{by="peer"|"buffer"}: up to a second late, as the next
  Gauge link_delivered_bytes_per_second;
  Counter link_waited_for_peer_us, link_waited_for_buffer_us;
  // arcomm_link_wait_seconds_total{state}, of the streams' threads
  CounterBy<Waiting, kWaitings> link_wait_ns;
  // arcomm_net_dropped_total{reason}: frames; up to a second late
  std::array<Counter, kNetDrops> net_dropped;
  Counter config_reloads_ok;      // arcomm_config_reloads_total{result="ok"}
  Counter config_reloads_failed;  // arcomm_config_reloads_total{result="error"}
  // arcomm_log_lines_dropped_total, _left_out_total and arcomm_build_info are added when the text
  // is made.
};

// Prometheus' text format 0.0.4.
std::string render_metrics(const Metrics& metrics);

}  // namespace arcomm
