// The calls about plans: registered with the session's worker, charged for as long as the session
// holds them. Thread: the control loop.
#pragma once

#include <functional>

#include "daemon/control/control_state.h"

namespace arcomm {

class PlanCalls {
 public:
  explicit PlanCalls(ControlState& state) : state_(state) {}

  void create_plan(const Caller& caller, const v1::CreatePlanRequest& request,
                   Answer<v1::CreatePlanReply> answer);
  void destroy_plan(const Caller& caller, const v1::DestroyPlanRequest& request,
                    Answer<v1::Empty> answer);
  // An answer did not reach its caller, who can neither use nor destroy the plan.
  void take_back(const Caller& caller, const v1::SessionRef& session,
                 const v1::CreatePlanReply& unheard);
  void take_back(const SessionEntry& session, PlanId unheard);

 private:
  // At the session's worker; what it was charged for is given back once it has gone there.
  void remove(DeviceWorker& worker, SessionId session, PlanId plan,
              std::function<void(const Status&)> then);
  void give_back_one(SessionId session);
  // For plans that the session will make in its ring.
  void pay_ahead(SessionEntry& session, std::uint32_t asked);

  ControlState& state_;
};

}  // namespace arcomm
