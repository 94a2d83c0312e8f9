// What was measured of operations that run within the ranks' calls (proto/host/in_call.h), beside
// the same operations by the worker, and the bound that follows. A value: immutable once shared, so
// any thread may read it. Units: bytes that one rank sends, microseconds of one AllReduce.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/plan/tuning/type_class.h"
#include "proto/host/in_call.h"

namespace arcomm {

struct InCallPoint {
  std::uint32_t ranks = 2;
  std::uint64_t bytes = 0;
  TypeClass type_class = TypeClass::Plain;
  double microseconds = 0, by_worker_microseconds = 0;
  friend bool operator==(const InCallPoint&, const InCallPoint&) = default;
};

struct InCallTuning {
  std::vector<InCallPoint> points;  // sorted by ranks, class, bytes

  // Sorts the points. Called by all that make them.
  void settle();
  // These, and of `older` what was measured of other numbers of ranks and classes.
  InCallTuning over(const InCallTuning& older) const;
  // The size up to which calls gain most over the worker, all measured sizes up to it together, so
  // that a size which a busy moment spoilt does not decide; 0 where they gain nothing, and nothing
  // where none was measured. More ranks than were measured go by the nearest number below, less by
  // how many more of the others each reads.
  std::optional<std::uint64_t> most_bytes(std::uint32_t ranks, TypeClass type_class) const;

  friend bool operator==(const InCallTuning&, const InCallTuning&) = default;
};

// host.in_call_bytes where it says "auto".
inline constexpr std::int64_t kInCallAuto = -1;

// Up to how many bytes calls of a communicator meet, by class of types; 0: none do.
struct InCallBounds {
  std::uint64_t plain = 0, half = 0;

  bool any() const { return plain != 0 || half != 0; }
  std::uint64_t of(TypeClass type_class) const {
    return type_class == TypeClass::Half ? half : plain;
  }
  friend bool operator==(const InCallBounds&, const InCallBounds&) = default;
};
// setting: host.in_call_bytes. asked: by a communicator that is to be measured, instead of what
// would hold otherwise; 0: nothing. What the setting turns off nobody turns on.
InCallBounds in_call_bounds(std::int64_t setting, const InCallTuning& measured, std::uint32_t ranks,
                            std::uint64_t asked = 0);

}  // namespace arcomm
