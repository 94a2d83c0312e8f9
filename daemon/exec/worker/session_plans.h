// The plans of sessions: made and removed as control asks (ControlRequests), or as a client does in
// its ring, where that is answered by the next turn and not by a call that takes 100 us. Both go
// through the same checks. In the ring a session makes no more plans than control has charged for,
// and removes none for which GPUs must be quiesced: the session asks control for what the ring
// refuses.
// Thread: the worker's.
#pragma once

#include <cstdint>
#include <functional>

#include "daemon/exec/clock.h"
#include "daemon/exec/specs.h"
#include "daemon/exec/worker/worker_state.h"
#include "daemon/session/session.h"
#include "proto/ring/layout.h"
#include "proto/status.h"

namespace arcomm {

class SessionPlans {
 public:
  // catch_up: Worker's, before a plan goes.
  SessionPlans(WorkerState& state, std::function<void()> catch_up)
      : state_(state), catch_up_(std::move(catch_up)) {}

  Result<PlanId> add(Session& session, const PlanSpec& spec);
  Status remove(Session& session, PlanId plan);
  // So that all sessions' requests for plans together take little of a turn, however many there
  // are: once they have had their part of it, rings are read again in the next one.
  void begin_turn() { until_ns_ = 0; }
  bool are_due_next_turn() const { return until_ns_ != 0 && now_ns() >= until_ns_; }
  // What the session asks for in its ring; `slot`, with kPlanMagic, is a private copy. The plan
  // that was made, or removed.
  Result<PlanId> answer(Session& session, const ring::WorkRequest& slot);

 private:
  Result<PlanId> make_in_ring(Session& session, const PlanSpec& spec);
  Status remove_in_ring(Session& session, PlanId plan);
  // Of the session; null where it is none of it, or none any more.
  const PersistentPlan* find(const Session& session, PlanId plan) const;

  WorkerState& state_;
  const std::function<void()> catch_up_;
  std::uint64_t until_ns_ = 0;  // of this turn; 0: none was asked for
};

}  // namespace arcomm
