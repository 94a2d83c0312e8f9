// From measured points to the sizes at which the choice changes: the same for every kind of table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace arcomm {

// The smallest size that is nearer, by ratio, to `above` than to `below`: 100 is as far from 10 as
// from 1000.
std::uint64_t half_way(std::uint64_t below, std::uint64_t above);

// `points` are sorted by group and then by bytes; the one with the smallest cost(point) is chosen.
// make(point, from_bytes) is a Crossover, which has a from_bytes and else says what is chosen.
template <typename Crossover, typename Point, typename GroupOf, typename Cost, typename Make>
std::vector<Crossover> crossovers_of(const std::vector<Point>& points, GroupOf group_of, Cost cost,
                                     Make make) {
  std::vector<Crossover> crossovers;
  const Point* below = nullptr;  // the best of the size before
  for (std::size_t i = 0; i < points.size();) {
    const Point* best = &points[i];
    std::size_t end = i;
    for (; end < points.size() && group_of(points[end]) == group_of(points[i]) &&
           points[end].bytes == points[i].bytes;
         ++end) {
      if (cost(points[end]) < cost(*best)) best = &points[end];
    }
    i = end;
    const bool first = below == nullptr || group_of(*below) != group_of(*best);
    Crossover next = make(*best, first ? 0 : half_way(below->bytes, best->bytes));
    below = best;
    if (!first) {
      Crossover same = crossovers.back();
      same.from_bytes = next.from_bytes;
      if (same == next) continue;
    }
    crossovers.push_back(next);
  }
  return crossovers;
}

}  // namespace arcomm
