#include "daemon/plan/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/plan/gpu_paths.h"
#include "daemon/plan/launch_table_builder.h"

namespace arcomm {
namespace {

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

std::string choice_text(Algorithm algorithm, std::uint32_t tile_bytes) {
  std::string text(name_of(algorithm));
  if (tile_bytes != 0) text += " in tiles of " + size_text(tile_bytes);
  return text;
}
std::string choice_text(const TuningPoint& point) {
  return choice_text(point.algorithm, point.tile_bytes);
}
std::string choice_text(const GpuTuningPoint& point) {
  return std::string(name_of(point.algorithm));
}

std::string ranks_text(std::uint32_t asked, std::uint32_t measured) {
  if (asked == measured) return {};
  return fmt::format("  {} ranks were not measured; {} were, and stand for them\n", asked,
                     measured);
}

// Of the measured size that decided, the nearest by ratio: all its points, fastest first. `group`:
// the points that count; not empty.
template <typename Point>
std::vector<const Point*> rivals_of(std::vector<const Point*> group, std::uint64_t bytes) {
  const auto distance = [bytes](const Point* point) {
    const double wanted = static_cast<double>(std::max<std::uint64_t>(bytes, 1));
    const double measured = static_cast<double>(std::max<std::uint64_t>(point->bytes, 1));
    return std::max(wanted / measured, measured / wanted);
  };
  const Point* nearest =
      *std::min_element(group.begin(), group.end(),
                        [&](const Point* a, const Point* b) { return distance(a) < distance(b); });
  std::erase_if(group, [&](const Point* point) { return point->bytes != nearest->bytes; });
  std::stable_sort(group.begin(), group.end(), [](const Point* a, const Point* b) {
    return a->microseconds < b->microseconds;
  });
  return group;
}

// Of the measured size that is the nearest by ratio.
void tell_in_call(const InCallTuning& measured, std::uint32_t ranks, std::uint64_t bytes,
                  DType dtype, Explanation& answer) {
  std::vector<const InCallPoint*> group;
  for (const InCallPoint& point : measured.points) {
    if (point.type_class == class_of(dtype) && point.ranks == ranks) group.push_back(&point);
  }
  if (group.empty()) return;
  const InCallPoint& nearest = *rivals_of(std::move(group), bytes).front();
  answer.text += fmt::format(
      "  measured with {} ranks at {}: {:.2f} us in calls, {:.2f} us by the worker\n", ranks,
      size_text(nearest.bytes), nearest.microseconds, nearest.by_worker_microseconds);
  if (answer.chosen == "in_call") answer.chosen_microseconds = nearest.microseconds;
}

// The figures of what was chosen and of the runner-up: where none is named, the fastest other.
template <typename Point>
void list(const std::vector<const Point*>& rivals, Explanation& answer) {
  for (const Point* point : rivals) {
    answer.text += fmt::format("  {:>12.2f} us  {}\n", point->microseconds, choice_text(*point));
    const std::string_view name = name_of(point->algorithm);
    if (name == answer.chosen) {
      if (answer.chosen_microseconds == 0) answer.chosen_microseconds = point->microseconds;
      continue;
    }
    if (answer.runner_up == answer.chosen) answer.runner_up = name;
    if (name == answer.runner_up && answer.runner_up_microseconds == 0)
      answer.runner_up_microseconds = point->microseconds;
  }
}

// What was measured, and who decided: as text, and as figures. with_in_stream: also of what clients
// launch.
void tell_measured(const GpuTuningTable& table, std::uint32_t ranks, std::uint64_t bytes,
                   bool with_in_stream, Explanation& answer) {
  const GpuTuningTable::Crossover* crossover = table.find(ranks, bytes);
  if (crossover == nullptr || table.points.empty()) {
    answer.text +=
        fmt::format("  table: {}; run `arctl tune` to measure this node\n", table.source);
    return;
  }
  answer.text += ranks_text(ranks, crossover->ranks);
  std::vector<const GpuTuningPoint*> group;
  for (const GpuTuningPoint& point : table.points) {
    if (point.ranks == crossover->ranks && (point.algorithm || with_in_stream))
      group.push_back(&point);
  }
  const auto rivals = rivals_of(std::move(group), bytes);
  answer.text += fmt::format("  measured between {} GPUs at {}, table: {}\n", crossover->ranks,
                             size_text(rivals.front()->bytes), table.source);
  list(rivals, answer);
  if (std::ranges::any_of(rivals, [](const auto* point) { return !point->algorithm; })) {
    answer.text += fmt::format(
        "  what the daemon launches counts {:.0f} us more: it has to be asked for\n", kHandOverUs);
  }
}

}  // namespace

Explanation explain(const TuningTable& table, const DeviceShape& shape, std::int64_t setting,
                    std::uint32_t ranks, std::uint64_t bytes, DType dtype) {
  const Choice choice = choose(bytes, dtype, ranks, shape, table);
  Explanation answer;
  answer.chosen = answer.runner_up = name_of(choice.algorithm);
  const std::string by_worker = choice_text(choice.algorithm, choice.tile_bytes);
  const std::uint64_t most = in_call_bounds(setting, table.in_call, ranks).of(class_of(dtype));
  const bool in_call = most != 0 && bytes <= most;
  answer.text = fmt::format("{} x {} {}: {}\n", ranks, size_text(bytes), text_of(dtype),
                            in_call ? "in_call" : by_worker);
  if (in_call) {
    answer.chosen = "in_call";
    answer.text += fmt::format(
        "  up to {} of this type the ranks' calls run it (host.in_call_bytes); what does not meet "
        "there is the worker's, by {}\n",
        size_text(most), by_worker);
  }
  tell_in_call(table.in_call, ranks, bytes, dtype, answer);
  const TuningTable::Crossover* crossover = table.find(ranks, bytes, dtype);
  if (crossover == nullptr) {
    answer.text += "  nothing was measured here: this is the built-in rule; run `arctl tune`\n";
    return answer;
  }
  answer.text += ranks_text(ranks, crossover->ranks);
  std::vector<const TuningPoint*> group;
  for (const TuningPoint& point : table.points) {
    if (point.ranks == crossover->ranks && point.type_class == crossover->type_class)
      group.push_back(&point);
  }
  const auto rivals = rivals_of(std::move(group), bytes);
  answer.text +=
      fmt::format("  measured with {} ranks at {} ({}), table: {}\n", crossover->ranks,
                  size_text(rivals.front()->bytes), text_of(crossover->type_class), table.source);
  list(rivals, answer);
  if (std::any_of(rivals.begin(), rivals.end(),
                  [](const auto* point) { return entry_of(point->algorithm).is_tiled; })) {
    answer.text += fmt::format(
        "  what is split over threads counts {:.0f} us more: in service they wait for cores\n",
        kHelpUs);
  }
  if (crossover->algorithm != choice.algorithm) {
    answer.text += fmt::format(
        "  {} would be chosen, but this size is cut into tiles so that other tenants are served\n",
        name_of(crossover->algorithm));
  }
  return answer;
}

Explanation explain(const GpuTuningTable& table, std::optional<CudaAlgorithm> forced,
                    std::uint32_t ranks, std::uint64_t bytes, DType dtype, bool in_stream) {
  const CudaAlgorithm launched = choose(table, forced, ranks, bytes);
  const std::uint64_t most_in_stream = table.most_in_stream_bytes(ranks);
  // As the first communicator on GPUs that can do everything gets it, and as one without a share.
  LaunchFacts facts{.ranks = ranks,
                    .atomic_128b_stores = true,
                    .in_stream_blocks = in_stream ? kMaxInStreamBlocks : 0,
                    .most_in_stream_bytes = most_in_stream};
  const LaunchKey key{.bytes = bytes, .dtype = dtype, .op = ReduceOp::Sum};
  const InStreamShape shape = make_launch_table(facts).find(key).in_stream;
  facts.in_stream_blocks = 0;
  const bool is_resident = make_launch_table(facts).find(key).path == LaunchPath::Resident;
  const std::string_view otherwise = is_resident ? kResidentName : name_of(launched);
  const bool may_be_in_stream = in_stream && has_in_stream_kernel(dtype);
  Explanation answer;
  answer.chosen = shape.blocks != 0 ? kInStreamName : otherwise;
  answer.runner_up = name_of(launched);
  answer.text = fmt::format("{} x {} between GPUs: {}\n", ranks, size_text(bytes), answer.chosen);
  if (shape.blocks != 0) {
    answer.text += fmt::format(
        "  each rank's own stream runs it, on {} blocks of a kernel that the daemon handed over "
        "(gpu.in_stream); where a process does not see all GPUs, or they have no room, it is {}\n",
        shape.blocks, otherwise);
  } else if (may_be_in_stream && bytes > most_in_stream) {
    answer.text += fmt::format(
        "  clients launch nothing above {} themselves, as measured here: gpu.in_stream serves what "
        "is "
        "shorter\n",
        size_text(most_in_stream));
  }
  if (is_resident) {
    answer.text += fmt::format(
        "  the kernel that stays on each GPU takes {}, and nothing is launched; launched, it would "
        "be {}\n",
        shape.blocks != 0 ? "it then" : "it", name_of(launched));
  }
  if (ranks <= 1) {
    answer.text += "  one rank alone: its input is its output\n";
    return answer;
  }
  if (forced) {
    answer.text += fmt::format("  gpu.algorithm is \"{}\"{}\n", name_of(*forced),
                               launched == *forced ? "" : ", which does not take it");
  }
  tell_measured(table, ranks, bytes, may_be_in_stream, answer);
  if (shape.blocks != 0 && answer.chosen_microseconds == 0) {
    // Second is then what would happen instead.
    answer.runner_up = otherwise;
    if (is_resident) answer.runner_up_microseconds = 0;
  }
  return answer;
}

}  // namespace arcomm
