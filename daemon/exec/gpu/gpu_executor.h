// Runs the plans of matched operations on their GPUs and takes back what has ended. One launch per
// rank, each on its own GPU, all in one order, so that no kernel waits for one that is queued
// behind it. Where a communicator repeats itself, its next operation is launched while this one
// runs, and waits in the queues for its call. Thread: the worker's. Never blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/exec/backend.h"
#include "daemon/exec/failpoint.h"
#include "daemon/exec/gpu/gpu_calls.h"
#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/exec/gpu/speculation/speculation_planner.h"

namespace arcomm {

class GpuExecutor {
 public:
  GpuExecutor(GpuGroups& groups, const BufferRegistry& buffers, const PlanTable& plans)
      : groups_(groups), buffers_(buffers), speculation_(groups, buffers, plans) {}
  GpuExecutor(const GpuExecutor&) = delete;
  GpuExecutor& operator=(const GpuExecutor&) = delete;

  // As Backend's of these names.
  Backend::Started start(Communicator& communicator, std::uint64_t now_ns, Failure& failure);
  bool collect(std::vector<Outcome>& outcomes);
  void stop(const Communicator& communicator);
  bool idle() const { return running_.empty(); }

 private:
  struct Run {
    Communicator* communicator = nullptr;
    std::uint64_t open = 0;  // bit r: rank r's part was launched and has not ended
    std::uint64_t stopped_ns = 0;
    std::uint64_t since_ns = 0;
    std::uint64_t open_again_ns = 0;  // where it was launched speculatively: doubts that it began
    bool doubted = false;             // once already
    bool waits = false;               // to be launched, until it finds room, or its place is left
    bool reported = false;            // that it has failed, while it still runs
    Failure failure;                  // the first
  };

  // Launches it, or finds that it was launched speculatively. False: something else was, and has
  // not left, or others have the room that it needs, or the scratches start over first.
  bool begin(Run& run, const Arrival& arrival);
  // Whether it has its place on the GPUs; asks operations that are in the way to leave.
  bool has_room(GpuGroup& group, const Arrival& arrival) const;
  // Before the scratches' epochs come round. False: not yet.
  Result<bool> start_over(GpuGroup& group) const;
  void launch(Run& run, const Arrival& arrival);
  void end(const Run& run);
  // A run that waits: whether it has begun, or ended before that.
  bool go_on(Run& run);
  void open_again(Run& run);
  // None of its gates opened, and none will.
  void launch_again(Run& run);
  // Looks at the ranks whose part is open.
  void look_at(Run& run);
  void give_up_broken(Run& run);

  GpuGroups& groups_;
  const BufferRegistry& buffers_;
  SpeculationPlanner speculation_;
  std::vector<Run> running_;
  const bool faults_ = failpoint("gpu.fault");
};

}  // namespace arcomm
