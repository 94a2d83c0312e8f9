// Operations that the resident grids take from the doorbells without the worker: the members'
// places in their grids, and the plans that may be started there. Thread: the worker's. Never waits
// longer than kMomentNs for operations, and as long as quiescing takes.
#pragma once

#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/exec/gpu/quiescer.h"
#include "daemon/session/persistent_plan.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

class ResidentPath {
 public:
  explicit ResidentPath(Quiescer& quiescer) : quiescer_(quiescer) {}

  // Each member gets a place in its GPU's grid.
  static Status join(GpuGroup& group);
  // No grid runs. The member takes no further part.
  static void drop_slot(GpuMember& member);
  // From its return on no resident operation of this member touches memory. Those that all ranks
  // have called get a moment to end.
  Status retire(GpuGroup& group, Rank rank);

  static Status set_plan(PlanId id, const GpuMember& member, const PersistentPlan& plan);
  // FailedPrecondition while an operation of the plan is open: by the grid's own account, as the
  // plan's buffers may be let go after it. group: null once it is gone.
  Status clear_plan(PlanId id, const PersistentPlan& plan, GpuEngine& engine, GpuGroup* group,
                    Rank rank);

 private:
  static void wait_for_operations(GpuMember& member);

  Quiescer& quiescer_;
};

}  // namespace arcomm
