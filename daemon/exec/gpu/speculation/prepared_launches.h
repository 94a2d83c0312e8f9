// What a communicator calls again and again, made ready for launching ahead in less than half of
// the CPU's time. Bounded: the oldest goes first. What is dropped here is only set aside: letting
// go of it wants GPUs on which nothing waits. Thread: the owner's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/exec/gpu/hardware/gpu_hardware.h"
#include "daemon/exec/gpu/speculation/prediction.h"

namespace arcomm {

using PreparedParts = std::vector<std::unique_ptr<PreparedLaunch>>;  // by rank

class PreparedLaunches {
 public:
  static constexpr std::size_t kMost = 256;
  // Asked for so often in vain, it is worth the 100 us per rank that preparing takes.
  static constexpr std::uint32_t kTimesBefore = 3;

  // What is ready for these plans and this algorithm, or null. Valid until the next call.
  PreparedParts* find(const PlanTuple& plans, CudaAlgorithm algorithm);
  // Of plans that find() has just been asked for.
  bool wants(const PlanTuple& plans) const;
  // Empty parts: it could not be done, and is not wanted again.
  PreparedParts* put(const PlanTuple& plans, PreparedParts parts);
  // It could not be done now: wanted again after as many times.
  void put_off(const PlanTuple& plans) { entries_.at(plans).times = 0; }
  // What was dropped since the last time.
  std::vector<PreparedParts> dropped() { return std::exchange(dropped_, {}); }
  void drop_all();

 private:
  struct Entry {
    CudaAlgorithm algorithm = CudaAlgorithm::Alone;
    std::uint32_t times = 0;  // asked for
    bool failed = false;
    PreparedParts parts;
  };
  void drop(Entry& entry);

  std::unordered_map<PlanTuple, Entry, PlanTupleHash> entries_;
  std::deque<PlanTuple> order_;  // the oldest first
  std::vector<PreparedParts> dropped_;
};

}  // namespace arcomm
