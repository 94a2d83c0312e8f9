// Launches operations before they are called: puts them into the ranks' queues behind gates, opens
// the gates, and gets out again what will not be called. While anything waits for a client in a
// GPU's queue, nothing may be allocated, mapped or let go there. Thread: the worker's; only
// withdraw() waits, as long as it is told.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "daemon/exec/gpu/deferred_release.h"
#include "daemon/exec/gpu/group/gpu_group.h"

namespace arcomm {

class Quiescer;

class Speculator {
 public:
  Speculator(const std::vector<GpuGroup*>& groups, DeferredRelease& deferred, LaunchRoom& room)
      : groups_(groups), deferred_(deferred), room_(room) {}

  // How long what was launched may wait for its call; 0: nothing is launched so.
  void use_lease(std::uint64_t lease_ns);
  bool may_speculate(const GpuGroup& group) const;
  // One call per rank. After an error some ranks' parts may be there and others' not: only the end
  // of the communicator is left.
  Status launch(GpuGroup& group, const LaunchGate& gate, CudaAlgorithm algorithm,
                std::span<const CudaAllReduce> calls);
  Status launch(GpuGroup& group, const LaunchGate& gate, CudaAlgorithm algorithm,
                const PreparedParts& prepared);
  // For the second launch(); some 100 us per rank, with all GPUs quiesced. Unavailable where they
  // cannot be.
  Result<PreparedParts> prepare(Quiescer& quiescer, GpuGroup& group, const PlanTuple& plans,
                                CudaAlgorithm algorithm, std::span<const CudaAllReduce> calls);

  // What waits there shall not happen. Returns whether all has left, or had happened (state None or
  // Ran); otherwise it is Leaving, and look_at() sees to it.
  bool withdraw(GpuGroup& group, std::uint64_t budget_ns);
  // Of each communicator; so long for each, and no longer in a turn than it has time for.
  void withdraw_all(TurnBudget& turn, std::uint64_t budget_ns);
  // What was launched so and is in the way of an operation that all ranks have called is withdrawn,
  // and its communicator launches nothing so for a while. Whether any of it has left at once.
  bool make_room(const LaunchPlace& waiter);
  // Lets what was launched behind this gate begin, whatever the clients wrote. All ranks must have
  // called it.
  void open(GpuGroup& group, const LaunchGate& gate);
  // Has everything left the members' queues?
  bool has_left(const GpuGroup& group) const { return find_busy(group) == nullptr; }
  // A GPU in whose queue something is left, if any.
  const GpuEngine* find_busy(const GpuGroup& group) const;

  // ---- the loop's verbs ----
  void look_at(GpuGroup& group, std::uint64_t now_ns);
  // A rank that waits for the others holds SMs of its GPU: not for long where somebody else has
  // work there.
  void make_way(std::uint64_t now_ns);

  struct Counts {
    std::uint64_t hits = 0, misses = 0;
  };
  void count_hit() { ++counts_.hits; }
  Counts take_counts() { return std::exchange(counts_, {}); }  // since the last time

 private:
  void begin(GpuGroup& group, const LaunchGate& gate, CudaAlgorithm algorithm);
  CudaGate gate_of(const GpuGroup& group, const GpuMember& member, const PlanTuple& plans) const;

  const std::vector<GpuGroup*>& groups_;
  DeferredRelease& deferred_;
  LaunchRoom& room_;
  std::uint64_t lease_ns_ = 0;
  Counts counts_;
};

}  // namespace arcomm
