// What a communicator calls next, judged by what it called before: models repeat themselves. A pure
// table, bounded; allocates nothing after its construction. Thread: the owner's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/launch_cuda.h"
#include "proto/types.h"

namespace arcomm {

// One operation: each rank's plan; invalid ids beyond the last rank.
using PlanTuple = std::array<PlanId, kMaxCudaRanks>;

class Prediction {
 public:
  static constexpr std::size_t kEntries = 64;

  Prediction() { entries_.reserve(kEntries); }

  // `called` has been called. What follows it, if the same has followed it the last two times; null
  // where that is not known. Valid until the next call.
  const PlanTuple* observe(const PlanTuple& called);

 private:
  struct Entry {
    PlanTuple plans{};
    PlanTuple next{};
    std::uint32_t times = 0;  // in a row that `next` has followed
  };
  std::size_t place_of(const PlanTuple& plans);

  std::vector<Entry> entries_;
  std::size_t last_ = kEntries;  // index of what was called last; none at first
  std::size_t oldest_ = 0;       // is overwritten next, once the table is full
};

}  // namespace arcomm
