#include "daemon/exec/tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/exec/host/host_launcher.h"
#include "daemon/plan/planner.h"
#include "kernels/host/launch.h"
#include "transport/device/device.h"
#include "transport/topology/topology.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kFirstBytes = 1024;
constexpr std::uint32_t kRanks[] = {2, 4, 8};
constexpr std::uint32_t kTiles[] = {64 * 1024, 256 * 1024};
constexpr int kWarmUps = 2;
constexpr int kLeastRuns = 5, kMostRuns = 200;
constexpr std::uint64_t kPointNs = 20'000'000;  // enough runs of a small one, few of a large one

struct Question {
  std::uint32_t ranks;
  std::uint64_t bytes;
  TypeClass type_class;
};

// The ranks' inputs and outputs, in the device's own memory, as large as the largest question.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> create(Device& device, std::uint64_t max_bytes,
                                               std::uint32_t max_ranks, std::uint64_t threads) {
    auto bench = std::unique_ptr<Bench>(new Bench());
    bench->shape = host_shape(threads);
    Result<std::unique_ptr<HostLauncher>> launcher =
        HostLauncher::create(device, bench->shape.streams);
    if (!launcher) return std::move(launcher).error();
    bench->launcher_ = std::move(launcher).value();
    for (std::uint32_t i = 0; i < 2 * max_ranks; ++i) {
      Result<Memory> memory = device.allocate(max_bytes);
      if (!memory) return std::move(memory).error();
      bench->memories_.push_back(std::move(memory).value());
    }
    return bench;
  }

  // The median of as many runs as fit, in microseconds.
  double measure(const Question& question, const Choice& choice) {
    AllReduceArgs args;
    args.num_inputs = args.num_outputs = args.divisor = question.ranks;
    args.dtype = question.type_class == TypeClass::Half ? DType::BFloat16 : DType::Float32;
    args.count = question.bytes / size_of(args.dtype);
    for (std::size_t rank = 0; rank < question.ranks; ++rank) {
      args.inputs[rank] = memories_[2 * rank].view().data;
      args.outputs[rank] = memories_[2 * rank + 1].view().data;
    }
    for (int i = 0; i < kWarmUps; ++i) run(choice, args);
    times_.clear();
    const std::uint64_t begin = now_ns();
    for (int i = 0; i < kMostRuns && (i < kLeastRuns || now_ns() - begin < kPointNs); ++i) {
      const std::uint64_t before = now_ns();
      run(choice, args);
      times_.push_back(now_ns() - before);
    }
    const auto middle = times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2);
    std::nth_element(times_.begin(), middle, times_.end());
    return std::max(static_cast<double>(*middle) / 1000.0, 0.001);
  }

  DeviceShape shape;

 private:
  Bench() = default;

  void run(const Choice& choice, const AllReduceArgs& args) {
    if (!entry_of(choice.algorithm).is_tiled) return all_reduce_range(choice, args, 0, args.count);
    TileJob* job = nullptr;
    while ((job = launcher_->start(choice, args)) == nullptr) {
    }
    while (launcher_->work(*job)) {
    }
    while (!launcher_->finished(*job)) {
    }
    launcher_->release(*job);
  }

  std::vector<Memory> memories_;
  std::vector<std::uint64_t> times_;
  std::unique_ptr<HostLauncher> launcher_;  // its streams end before the memory goes
};

std::vector<Choice> candidates(const Question& question, const DeviceShape& shape) {
  std::vector<Choice> choices;
  for (const AlgorithmEntry& entry : catalog()) {
    if (question.bytes < entry.sensible_from || question.bytes > entry.max_bytes) continue;
    if (!entry.is_tiled) {
      choices.push_back({entry.algorithm, 0, 1});
      continue;
    }
    for (const std::uint32_t tile : kTiles) {
      if (tile != kTiles[0] && tile >= question.bytes) continue;  // the same as the smaller one
      choices.push_back({entry.algorithm, tile, shape.streams});
    }
  }
  std::erase_if(choices, [&](const Choice& choice) {
    return !can_run(choice, question.bytes, question.ranks);
  });
  return choices;
}

}  // namespace

Result<TuningTable> tune(Device& device, const TuneOptions& options, const TuneProgress& progress) {
  const TuneOptions defaults;
  const std::uint64_t max_bytes =
      std::max(options.max_bytes == 0 ? defaults.max_bytes : options.max_bytes, kFirstBytes);
  const std::chrono::nanoseconds budget =
      options.budget.count() <= 0 ? defaults.budget : options.budget;
  // Memory for all ranks must fit with room to spare: fewer ranks are measured at the largest sizes
  // otherwise.
  const Topology topology = discover_host();
  const std::uint64_t spare = topology.memory_bytes / 4;
  std::uint32_t max_ranks = kRanks[0];
  for (const std::uint32_t ranks : kRanks) {
    if (std::uint64_t{2} * ranks * max_bytes <= spare) max_ranks = ranks;
  }
  Result<std::unique_ptr<Bench>> bench =
      Bench::create(device, max_bytes, max_ranks, options.threads);
  if (!bench) return std::move(bench).error();

  // Small sizes of all ranks first: a short budget leaves out the largest, which the planner's own
  // rule gets right.
  std::vector<Question> questions;
  for (std::uint64_t bytes = kFirstBytes; bytes <= max_bytes; bytes *= 4) {
    for (const std::uint32_t ranks : kRanks) {
      if (ranks > max_ranks) continue;
      for (const TypeClass type_class : {TypeClass::Plain, TypeClass::Half}) {
        questions.push_back({ranks, bytes, type_class});
      }
    }
  }
  TuningTable table;
  table.source = "measured";
  table.machine = fmt::format("{}, {} threads", topology.cpu_model, (*bench)->shape.streams);
  const std::uint64_t begin = now_ns(), end = begin + static_cast<std::uint64_t>(budget.count());
  for (std::size_t i = 0; i < questions.size() && now_ns() < end; ++i) {
    const Question& question = questions[i];
    bool has_one = false;
    for (const Choice& choice : candidates(question, (*bench)->shape)) {
      if (now_ns() >= end && has_one) break;
      TuningPoint point{question.ranks,   question.bytes,    question.type_class,
                        choice.algorithm, choice.tile_bytes, 0};
      point.microseconds = (*bench)->measure(question, choice);
      has_one = true;
      table.points.push_back(point);
      const double done = static_cast<double>(i + 1) / static_cast<double>(questions.size());
      const double spent =
          static_cast<double>(now_ns() - begin) / static_cast<double>(budget.count());
      if (progress && !progress({std::min(1.0, std::max(done, spent)), point})) {
        table.settle();
        return table;
      }
    }
  }
  table.settle();
  return table;
}

}  // namespace arcomm
