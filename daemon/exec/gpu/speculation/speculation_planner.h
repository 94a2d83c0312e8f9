// Decides what is launched before it is called, and from what: where the same plans followed one
// another the last two times, the next operations. Thread: the worker's.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/exec/gpu/gpu_calls.h"
#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/session/persistent_plan.h"

namespace arcomm {

// The doorbell that all ranks came through; number 0 where the numbers differ.
LaunchGate gate_of(const Arrival& arrival, std::size_t ranks);

class SpeculationPlanner {
 public:
  SpeculationPlanner(GpuGroups& groups, const BufferRegistry& buffers, const PlanTable& plans)
      : groups_(groups), buffers_(buffers), plans_(plans) {}

  // `arrival` runs: launches what comes after it. An error: the communicator is to be revoked.
  Status speculate_after(const Communicator& communicator, const Arrival& arrival);

 private:
  enum class Next : std::uint8_t { Launched, None };
  Result<Next> speculate(GpuGroup& group, const LaunchGate& gate);
  // The operation that the gate names; nothing where its plans cannot run together.
  bool find_request(const GpuGroup& group, const LaunchGate& gate, GpuRequest& request) const;
  // Null where it could not be done: then it is launched without.
  PreparedParts* prepare(GpuGroup& group, const PlanTuple& plans, CudaAlgorithm algorithm,
                         std::span<const CudaAllReduce> calls);

  GpuGroups& groups_;
  const BufferRegistry& buffers_;
  const PlanTable& plans_;
};

}  // namespace arcomm
