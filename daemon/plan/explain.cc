#include "daemon/plan/explain.h"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace

Explanation explain(const TuningTable& table, const DeviceShape& shape, std::uint32_t ranks,
                    std::uint64_t bytes, DType dtype) {
  const Choice choice = choose(bytes, dtype, ranks, shape, table);
  Explanation answer;
  answer.chosen = choice.algorithm;
  answer.runner_up = choice.algorithm;
  answer.text = fmt::format("{} x {} {}: {}\n", ranks, size_text(bytes), text_of(dtype),
                            choice_text(choice.algorithm, choice.tile_bytes));
  const TuningTable::Crossover* crossover = table.find(ranks, bytes, dtype);
  if (crossover == nullptr) {
    answer.text += "  nothing was measured here: this is the built-in rule; run `arctl tune`\n";
    return answer;
  }
  if (crossover->ranks != ranks) {
    answer.text += fmt::format("  {} ranks were not measured; {} were, and stand for them\n", ranks,
                               crossover->ranks);
  }
  // The measured size that decided: the nearest by ratio.
  const TuningPoint* nearest = nullptr;
  const auto distance = [bytes](const TuningPoint& point) {
    const double wanted = static_cast<double>(std::max<std::uint64_t>(bytes, 1));
    const double measured = static_cast<double>(std::max<std::uint64_t>(point.bytes, 1));
    return std::max(wanted / measured, measured / wanted);
  };
  for (const TuningPoint& point : table.points) {
    if (point.ranks != crossover->ranks || point.type_class != crossover->type_class) continue;
    if (nearest == nullptr || distance(point) < distance(*nearest)) nearest = &point;
  }
  std::vector<const TuningPoint*> rivals;
  for (const TuningPoint& point : table.points) {
    if (point.ranks == nearest->ranks && point.type_class == nearest->type_class &&
        point.bytes == nearest->bytes) {
      rivals.push_back(&point);
    }
  }
  std::sort(rivals.begin(), rivals.end(), [](const TuningPoint* a, const TuningPoint* b) {
    return a->microseconds < b->microseconds;
  });
  answer.text += fmt::format("  measured with {} ranks at {} ({}), table: {}\n", nearest->ranks,
                             size_text(nearest->bytes), text_of(nearest->type_class), table.source);
  for (const TuningPoint* point : rivals) {
    answer.text += fmt::format("  {:>12.2f} us  {}\n", point->microseconds,
                               choice_text(point->algorithm, point->tile_bytes));
    if (point->algorithm == answer.chosen && answer.chosen_microseconds == 0) {
      answer.chosen_microseconds = point->microseconds;
    }
    if (point->algorithm != answer.chosen && answer.runner_up_microseconds == 0) {
      answer.runner_up = point->algorithm;
      answer.runner_up_microseconds = point->microseconds;
    }
  }
  if (crossover->algorithm != choice.algorithm) {
    answer.text += fmt::format(
        "  {} would be chosen, but this size is cut into tiles so that other tenants are served\n",
        name_of(crossover->algorithm));
  }
  return answer;
}

}  // namespace arcomm
