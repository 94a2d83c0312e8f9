#include "proto/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace arcomm {
namespace {

constexpr std::size_t kLongestName = 64;

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_above(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
    std::swap(two_above, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::size_t most_edits(std::string_view name) {
  return name.empty() || name.size() > kLongestName ? 0 : std::max<std::size_t>(2, name.size() / 3);
}

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> known) {
  const std::size_t most = most_edits(name);
  if (most == 0) return std::nullopt;
  std::size_t best = most + 1;
  std::optional<std::string> nearest;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace arcomm
