#include "daemon/telemetry/metrics/metrics.h"

#include <algorithm>
#include <bit>

namespace arcomm {
namespace {

constexpr double kUsPerSecond = 1e6;

}  // namespace

std::string_view text_of(NodeResource resource) {
  switch (resource) {
    case NodeResource::Sessions:
      return "sessions";
    case NodeResource::CommunicatorRanks:
      return "communicators";
    case NodeResource::HostBytes:
      return "host_bytes";
    case NodeResource::Mappings:
      return "mappings";
    case NodeResource::Plans:
      return "plans";
    case NodeResource::DevicePlans:
      return "device_plans";
    case NodeResource::Connections:
      return "connections";
    case NodeResource::Calls:
      return "calls";
    case NodeResource::GpuCommunicators:
      return "gpu_communicators";
    case NodeResource::GpuRanks:
      return "gpu_ranks";
    case NodeResource::GpuBytes:
      return "gpu_bytes";
  }
  return "unknown";
}

std::string_view text_of(NetDrop why) {
  switch (why) {
    case NetDrop::Ended:
      return "ended";
    case NetDrop::NeverFormed:
      return "never_formed";
    case NetDrop::TooMany:
      return "too_many";
    case NetDrop::OtherEpoch:
      return "other_epoch";
    case NetDrop::Late:
      return "late";
    case NetDrop::Damaged:
      return "damaged";
  }
  return "unknown";
}

std::string_view text_of(Waiting how) {
  switch (how) {
    case Waiting::Spin:
      return "spin";
    case Waiting::Yield:
      return "yield";
    case Waiting::Sleep:
      return "sleep";
  }
  return "unknown";
}

std::size_t metric_cell() {
  static std::atomic<std::size_t> next{0};
  thread_local const std::size_t kCell =
      next.fetch_add(1, std::memory_order_relaxed) % kMetricCells;
  return kCell;
}

void DurationHistogram::observe_ns(std::uint64_t duration_ns) {
  // Rounded up to whole microseconds, the bucket is the first whose bound 2^i us is not below.
  const std::uint64_t us = duration_ns / 1000 + (duration_ns % 1000 != 0 ? 1 : 0);
  const auto bucket = us <= 1 ? std::size_t{0} : static_cast<std::size_t>(std::bit_width(us - 1));
  Cell& cell = cells_[metric_cell()];
  cell.buckets[std::min(bucket, kBounds)].fetch_add(1, std::memory_order_relaxed);
  cell.sum_ns.fetch_add(duration_ns, std::memory_order_relaxed);
}

DurationHistogram::Folded DurationHistogram::fold() const {
  Folded folded;
  std::uint64_t sum_ns = 0;
  for (const Cell& cell : cells_) {
    for (std::size_t i = 0; i < kBuckets; ++i)
      folded.buckets[i] += cell.buckets[i].load(std::memory_order_relaxed);
    sum_ns += cell.sum_ns.load(std::memory_order_relaxed);
  }
  for (const std::uint64_t in_bucket : folded.buckets) folded.count += in_bucket;
  folded.sum_seconds = static_cast<double>(sum_ns) / kNsPerSecond;
  return folded;
}

double DurationHistogram::bound_seconds(std::size_t bucket) {
  return static_cast<double>(std::uint64_t{1} << std::min(bucket, kBounds)) / kUsPerSecond;
}

double DurationHistogram::Folded::quantile_seconds(double q) const {
  const double goal = std::clamp(q, 0.0, 1.0) * static_cast<double>(count);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets[i];
    if (buckets[i] != 0 && static_cast<double>(seen) >= goal) return bound_seconds(i);
  }
  return count == 0 ? 0.0 : bound_seconds(kBounds);
}

}  // namespace arcomm
