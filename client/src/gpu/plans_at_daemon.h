// How plans come to be at the daemon and go: asked for in the session's ring, where the worker that
// will run them answers in its next turn (2 us), else by a call (100 us), which also says what is
// wrong. In the ring a session makes plans that it has paid for: a call pays for more of them.
// Thread: any. Lives no longer than what it refers to.
#pragma once

#include <mutex>
#include <vector>

#include "client/src/control/node_control.h"
#include "client/src/host/rings/submission.h"
#include "client/src/host/rings/waiting.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"

namespace arcomm::client {

class PlansAtDaemon {
 public:
  PlansAtDaemon(NodeControl& control, const SessionKey& key, Submission& submission,
                Waiting& waiting)
      : control_(control), key_(key), submission_(submission), waiting_(waiting) {}

  Result<PlanId> create(const NewPlan& wanted, Deadline deadline);
  // As destroy_plan() for a plan in whose place another one is to come: it stays paid for.
  Status replace(PlanId plan, Deadline deadline);
  Status destroy(PlanId plan, Deadline deadline) {
    return control_.destroy_plan(key_, plan, deadline);
  }
  // Those whose askers had stopped waiting before they were made: each holds its buffers. To be
  // called before a buffer is released. Those that the daemon does not answer for stay to be
  // removed.
  void remove_late(Deadline deadline);

 private:
  // Invalid: the ring is not the way.
  PlanId ask(Question& question, Deadline deadline);

  NodeControl& control_;
  const SessionKey& key_;
  Submission& submission_;
  Waiting& waiting_;
  std::mutex mutex_;
  std::vector<PlanId> late_;
};

}  // namespace arcomm::client
