// The plans that one member has at the daemon: made when first asked for, and given up again when
// the room is needed or their memory goes, but none that a start may still need.
// Thread: its owner's lock, under which the daemon is asked. Pointers stay good until the plan is
// dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "client/src/control/node_control.h"
#include "client/src/gpu/gpu_plan_cache.h"
#include "client/src/gpu/memory/gpu_buffer.h"
#include "client/src/gpu/posting/posted_starts.h"
#include "client/src/host/collective_call.h"
#include "client/src/session/deadline.h"
#include "proto/gpu/launch_table.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

class GpuPlans {
 public:
  struct Daemon {
    std::function<Result<PlanId>(const NewPlan&, Deadline)> create_plan;
    std::function<Status(PlanId, Deadline)> destroy_plan;
    // The same for one in whose place another is to come.
    std::function<Status(PlanId, Deadline)> replace_plan;
  };
  // starts: of these plans; outlives this.
  GpuPlans(Daemon daemon, MemberId member, const PostedStarts& starts)
      : daemon_(std::move(daemon)), member_(member), starts_(starts) {}

  struct Wanted {
    CollectiveCall call;
    GpuBuffer send, recv;
    LaunchPath path = LaunchPath::Resident;
    std::uint64_t timeout_ms = 0;
  };
  // The one that was made for the same, or a new one.
  Result<GpuPlan*> get(const Wanted& wanted, Deadline deadline);
  // Null: there is none. Counts as a use.
  GpuPlan* find(const GpuPlanKey& key) { return plans_.find(key); }

  // Whether of the plans on the buffer whose memory is there none is under way, in a graph or held.
  // False, too, where the GPU does not say in time.
  bool nobody_needs(BufferId buffer, const IsThere& is_there);
  Status drop_those_on(BufferId buffer, Deadline deadline);
  Status drop_all(Deadline deadline);

 private:
  Status make_room(Deadline deadline);
  Result<bool> drop_oldest(Deadline deadline);
  Status drop(const std::vector<GpuPlan*>& plans, Deadline deadline);
  Status drop(GpuPlan& plan, Deadline deadline) {
    return drop(plan, daemon_.destroy_plan(plan.id, deadline));
  }
  Status drop(GpuPlan& plan, Status gone);

  const Daemon daemon_;
  const MemberId member_;
  const PostedStarts& starts_;
  GpuPlanCache plans_;
};

}  // namespace arcomm::client
