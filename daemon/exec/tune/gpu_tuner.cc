#include "daemon/exec/tune/gpu_tuner.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/exec/tune/ask_worker.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kLeastBytes = 1024;
constexpr std::uint64_t kLastBytes = 1ull << 36;  // of any ladder
constexpr std::uint64_t kStep = 4;

std::vector<std::uint32_t> sets_of(std::uint32_t gpus) {
  std::set<std::uint32_t> sets;
  for (std::uint32_t ranks = 2; ranks <= gpus; ranks *= 2) sets.insert(ranks);
  if (gpus >= 2) sets.insert(gpus);
  return {sets.begin(), sets.end()};
}

// Those that make sense of so many bytes, in-stream operations first. Which of them these GPUs can
// do the worker knows.
std::vector<std::optional<CudaAlgorithm>> candidates(std::uint32_t ranks, std::uint64_t bytes) {
  std::vector<std::optional<CudaAlgorithm>> all{std::nullopt};
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    if (bytes >= entry.sensible_from && can_launch(entry.algorithm, bytes, ranks))
      all.emplace_back(entry.algorithm);
  }
  return all;
}

class Tuner {
 public:
  Tuner(DeviceWorker& worker, std::uint32_t gpus, const GpuTuneOptions& options,
        const GpuTuneProgress& progress)
      : worker_(worker), sets_(sets_of(gpus)), progress_(progress) {
    const GpuTuneOptions defaults;
    max_bytes_ = std::clamp(options.max_bytes == 0 ? defaults.max_bytes : options.max_bytes,
                            kLeastBytes, kLastBytes);
    const auto budget = options.budget.count() <= 0 ? defaults.budget : options.budget;
    budget_ns_ = static_cast<std::uint64_t>(std::chrono::nanoseconds(budget).count());
    begin_ns_ = now_ns();
    for (std::uint64_t bytes = kLeastBytes; bytes <= max_bytes_; bytes *= kStep) ++sizes_;
  }
  ~Tuner() {
    static_cast<void>(ask_worker<void>([&](auto done) { worker_.end_measuring(std::move(done)); }));
  }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  Result<GpuTuningTable> run() {
    for (const std::uint32_t ranks : sets_) {
      if (stopped_ || over()) break;
      ARC_RETURN_IF_ERROR(measure_set(ranks));
    }
    if (table_.points.empty()) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "nothing was measured",
                   stopped_ ? "" : ": allow more time, or see the log for kernels left out");
    }
    table_.source = "measured";
    table_.settle();
    return std::move(table_);
  }

 private:
  bool over() const { return now_ns() - begin_ns_ >= budget_ns_; }
  double progress() const {
    const double done = static_cast<double>(steps_) / static_cast<double>(sizes_ * sets_.size());
    const double spent =
        static_cast<double>(now_ns() - begin_ns_) / static_cast<double>(budget_ns_);
    return std::min(1.0, std::max(done, spent));
  }

  Status measure_set(std::uint32_t ranks) {
    std::set<std::optional<CudaAlgorithm>> broken = wrong_;
    Result<std::uint64_t> room = begin(ranks);
    if (!room) return std::move(room).error();
    for (std::uint64_t bytes = kLeastBytes; bytes <= max_bytes_; bytes *= kStep) {
      ++steps_;
      if (stopped_ || over() || bytes > *room) continue;
      for (const std::optional<CudaAlgorithm> algorithm : candidates(ranks, bytes)) {
        if (stopped_ || broken.contains(algorithm)) continue;
        const Result<double> took = ask_worker<double>([&](auto done) {
          worker_.measure({algorithm, bytes}, std::move(done));
        });
        if (took) {
          report({ranks, bytes, algorithm, *took});
          continue;
        }
        const ErrorCode code = took.error().code;
        if (code == ErrorCode::OutOfRange) continue;  // nothing was launched
        // Not about this kernel: somebody came, or the daemon stops, or the worker is stuck.
        if (code == ErrorCode::FailedPrecondition || code == ErrorCode::Unavailable ||
            code == ErrorCode::Unimplemented)
          return took.error();
        log::warn("tune: left out from here on: {}", took.error().message);
        broken.insert(algorithm);
        if (code == ErrorCode::DataLoss) distrust(algorithm);
        room = begin(ranks);
        if (!room) return std::move(room).error();
        if (bytes > *room) break;
      }
    }
    return {};
  }

  Result<std::uint64_t> begin(std::uint32_t ranks) {
    return ask_worker<std::uint64_t>(
        [&](auto done) { worker_.begin_measuring(ranks, max_bytes_, std::move(done)); });
  }

  // What was right so far may have been so by luck.
  void distrust(std::optional<CudaAlgorithm> algorithm) {
    wrong_.insert(algorithm);
    std::erase_if(table_.points,
                  [&](const GpuTuningPoint& point) { return point.algorithm == algorithm; });
  }

  void report(const GpuTuningPoint& point) {
    table_.points.push_back(point);
    if (progress_ && !progress_({progress(), point})) stopped_ = true;
  }

  DeviceWorker& worker_;
  const std::vector<std::uint32_t> sets_;
  const GpuTuneProgress& progress_;
  std::uint64_t max_bytes_ = 0, budget_ns_ = 1, begin_ns_ = 0;
  std::size_t sizes_ = 0, steps_ = 0;  // of one set; seen so far, of all
  bool stopped_ = false;
  std::set<std::optional<CudaAlgorithm>> wrong_;  // whose sums were
  GpuTuningTable table_;
};

}  // namespace

Result<GpuTuningTable> tune_gpus(DeviceWorker& worker, std::uint32_t gpus,
                                 const GpuTuneOptions& options, const GpuTuneProgress& progress) {
  if (gpus < 2) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported, "this node serves ", gpus,
                 " GPUs: it takes two to choose between kernels");
  }
  return Tuner(worker, gpus, options, progress).run();
}

}  // namespace arcomm
