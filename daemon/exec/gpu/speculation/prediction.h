// What a communicator calls next, judged by what it called before: models repeat themselves. A pure
// table, bounded; allocates only for what it has not seen. Thread: the owner's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/launch/launch_cuda.h"
#include "proto/gpu/captured_identity.h"
#include "proto/types.h"

namespace arcomm {

// One operation: each rank's plan, invalid ids beyond the last rank; and which of those that graphs
// hold: two of them may have the same plans, on some ranks or all.
struct PlanTuple {
  std::array<PlanId, kMaxGpuRanks> by_rank{};
  std::uint32_t identity = kNoIdentity;

  PlanId& operator[](std::size_t rank) { return by_rank[rank]; }
  const PlanId& operator[](std::size_t rank) const { return by_rank[rank]; }
  friend bool operator==(const PlanTuple&, const PlanTuple&) = default;
};

struct PlanTupleHash {
  std::size_t operator()(const PlanTuple& plans) const noexcept {
    std::uint64_t hash = plans.identity;
    for (const PlanId& plan : plans.by_rank) hash = (hash ^ plan.bits()) * 0x9e37'79b9'7f4a'7c15;
    return static_cast<std::size_t>(hash ^ hash >> 32);
  }
};

class Prediction {
 public:
  // A model of 80 layers calls 160 times per step, with plans of its own for each batch size.
  static constexpr std::size_t kEntries = 1024;

  // `called` has been called; returns what follows it, as after().
  const PlanTuple* observe(const PlanTuple& called);
  // What follows it, if the same has followed it the last two times; null where that is not known.
  // Valid until the next observe().
  const PlanTuple* after(const PlanTuple& called) const;

 private:
  struct Entry {
    PlanTuple plans{};
    PlanTuple next{};
    std::uint32_t times = 0;  // in a row that `next` has followed
  };
  std::size_t place_of(const PlanTuple& plans);

  std::vector<Entry> entries_;
  std::unordered_map<PlanTuple, std::size_t, PlanTupleHash> places_;  // index into entries_
  std::size_t last_ = kEntries;  // index of what was called last; none at first
  std::size_t oldest_ = 0;       // is overwritten next, once the table is full
};

}  // namespace arcomm
