#include "daemon/plan/tuning/tuning_table.h"

#include <algorithm>
#include <tuple>

#include "daemon/plan/tuning/crossovers.h"

namespace arcomm {
namespace {

auto group_of(const TuningPoint& point) {
  return std::tuple(point.key, point.ranks, point.type_class);
}
auto order_of(const TuningPoint& point) {
  return std::tuple(point.key, point.ranks, point.type_class, point.bytes, point.algorithm,
                    point.tile_bytes);
}

// Compared without division, by cross products.
bool is_nearer(std::uint64_t wanted, std::uint64_t below, std::uint64_t above) {
  // wanted / below <= above / wanted  <=>  wanted^2 <= below * above
  return static_cast<__uint128_t>(wanted) * wanted <= static_cast<__uint128_t>(below) * above;
}

}  // namespace

std::uint64_t half_way(std::uint64_t below, std::uint64_t above) {
  std::uint64_t low = below, high = above;
  while (low + 1 < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    (is_nearer(middle, below, above) ? low : high) = middle;
  }
  return high;
}

TuningTable default_tuning() {
  return {};
}  // the planner's own rule holds where no point does

void TuningTable::settle() {
  std::sort(points.begin(), points.end(),
            [](const TuningPoint& a, const TuningPoint& b) { return order_of(a) < order_of(b); });
  crossovers = crossovers_of<Crossover>(
      points, group_of,
      [](const TuningPoint& point) {
        return point.microseconds + (entry_of(point.algorithm).is_tiled ? kHelpUs : 0);
      },
      [](const TuningPoint& best, std::uint64_t from_bytes) {
        return Crossover{best.ranks,     best.type_class, from_bytes,
                         best.algorithm, best.tile_bytes, best.key};
      });
}

const TuningTable::Crossover* TuningTable::find(std::uint32_t ranks, std::uint64_t bytes,
                                                DType dtype, TuningKey key) const {
  const TypeClass type_class = class_of(dtype);
  // The nearest number of ranks that was measured: the largest not above, else the smallest there
  // is.
  std::uint32_t nearest = 0;
  for (const Crossover& crossover : crossovers) {
    if (crossover.key != key || crossover.type_class != type_class) continue;
    if (nearest == 0 || crossover.ranks <= ranks) nearest = crossover.ranks;
  }
  const Crossover* chosen = nullptr;
  for (const Crossover& crossover : crossovers) {
    if (crossover.key == key && crossover.ranks == nearest && crossover.type_class == type_class &&
        crossover.from_bytes <= bytes) {
      chosen = &crossover;
    }
  }
  return chosen;
}

}  // namespace arcomm
