// Charges for which there may be room in a moment. GPU memory that was released is charged for
// until it has gone from its worker, though nothing but its next quiescing is waited for; and
// memory of the host's and sessions share limits with it. So whoever lacks room has the worker let
// go of that before it is refused. Thread: the control loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/control/control_state.h"

namespace arcomm {

// So much of it is to be charged.
struct Demand {
  const FairShare& of;
  std::uint64_t amount = 1;
  bool is_of_gpus = true;  // GPU memory is charged for with it, too
};

struct WaitingCharge {
  uid_t uid = 0;
  SessionId session = {};            // that is to be there still; none: of Attach
  std::uint64_t waits_until_ns = 0;  // Caller's
  std::vector<Demand> demands = {};
  std::function<Status()> charge = {};  // of all of them, or of none
};

// then: in the same task of the loop as `charge`, with what that gave; or why it was not called.
// At once where there is room, or will be none; else after a second at most, or a little more where
// the worker does not answer.
void charge_with_room(ControlState& state, WaitingCharge wanted,
                      std::function<void(const Status&)> then);

}  // namespace arcomm
