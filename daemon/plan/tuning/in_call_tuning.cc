#include "daemon/plan/tuning/in_call_tuning.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

namespace arcomm {
namespace {

// Where nothing was measured. On 2 cores calls take 3.4 us for 16 KB of float32 between 2 ranks
// where the worker takes 4.3, and 8.9 between 4 where it takes 10.1; for 64 KB 10.6 where it takes
// 6.2, and 28 where it takes 15.
constexpr std::uint64_t kUnmeasuredBytes = std::uint64_t{16} << 10;
// What each rank reads of the others.
constexpr std::uint64_t kMostTraffic = std::uint64_t{48} << 10;
// A moment in which others had the cores makes either look a hundred times slower than it is.
constexpr double kMostRatio = 8;

// Below 0 where calls took longer. Of ratios, as the small sizes are the ones that are called most.
double gain_of(const InCallPoint& point) {
  return std::log(
      std::clamp(point.by_worker_microseconds / point.microseconds, 1 / kMostRatio, kMostRatio));
}

}  // namespace

void InCallTuning::settle() {
  std::ranges::sort(points, [](const InCallPoint& a, const InCallPoint& b) {
    return std::tie(a.ranks, a.type_class, a.bytes) < std::tie(b.ranks, b.type_class, b.bytes);
  });
}

InCallTuning InCallTuning::over(const InCallTuning& older) const {
  InCallTuning both = *this;
  std::ranges::copy_if(older.points, std::back_inserter(both.points), [&](const InCallPoint& old) {
    return std::ranges::none_of(points, [&](const InCallPoint& point) {
      return point.ranks == old.ranks && point.type_class == old.type_class;
    });
  });
  both.settle();
  return both;
}

std::optional<std::uint64_t> InCallTuning::most_bytes(std::uint32_t ranks,
                                                      TypeClass type_class) const {
  std::optional<std::uint32_t> nearest;
  for (const InCallPoint& point : points) {
    if (point.type_class == type_class && point.ranks <= ranks) nearest = point.ranks;
  }
  if (!nearest) return std::nullopt;
  std::uint64_t most = 0;
  double gain = 0, most_gain = 0;
  for (const InCallPoint& point : points) {
    if (point.type_class != type_class || point.ranks != *nearest) continue;
    gain += gain_of(point);
    if (gain <= most_gain) continue;
    most = point.bytes;
    most_gain = gain;
  }
  return *nearest < 2 ? most : most * (*nearest - 1) / (ranks - 1);
}

InCallBounds in_call_bounds(std::int64_t setting, const InCallTuning& measured, std::uint32_t ranks,
                            std::uint64_t asked) {
  if (setting == 0 || ranks < 2 || ranks > kMaxInCallRanks) return {};
  if (asked != 0) return {std::min(asked, kMaxInCallBytes), std::min(asked, kMaxInCallBytes)};
  const std::uint64_t wanted =
      setting == kInCallAuto ? kUnmeasuredBytes : static_cast<std::uint64_t>(setting);
  const std::uint64_t plain = std::min({wanted, kMaxInCallBytes, kMostTraffic / (ranks - 1)});
  // 16-bit types take as long for half the bytes.
  const InCallBounds by_rule{plain, plain / 2};
  if (setting != kInCallAuto) return by_rule;
  return {measured.most_bytes(ranks, TypeClass::Plain).value_or(by_rule.plain),
          measured.most_bytes(ranks, TypeClass::Half).value_or(by_rule.half)};
}

}  // namespace arcomm
