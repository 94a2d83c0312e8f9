// What one worker knows: its sessions, communicators, buffers and plans, the line that requests
// must pass, and the device behind them. Wiring only; Worker and ControlRequests act on it.
// Thread: the worker's. Members are in the order in which they may use each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "daemon/comm/communicator_table.h"
#include "daemon/exec/backend.h"
#include "daemon/exec/net/between_nodes.h"
#include "daemon/exec/worker/completion.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/exec/worker/session_set.h"
#include "daemon/memory/buffer_registry.h"
#include "daemon/memory/pool.h"
#include "daemon/session/admission.h"
#include "daemon/session/persistent_plan.h"

namespace arcomm {

struct WorkerState {
  WorkerState(DeviceWorker::Parts of, CommunicatorTable::RevokedListener revoked)
      : parts(std::move(of)), communicators(std::move(revoked)) {
    admission.limits = AdmissionLimits::from(*parts.settings, false);
  }

  // The member of a session, or NotFound.
  Result<Member*> need_member(SessionId session, MemberId id) const {
    if (Member* member = admission.find_member(session, id)) return member;
    return error(ErrorCode::NotFound, Reason::UnknownHandle, "communicator ", id,
                 " is unknown, freed or of another session");
  }
  std::uint64_t pending() const { return operations.taken(); }

  DeviceWorker::Parts parts;
  BufferRegistry buffers;
  Pool<Operation> operations{512};
  PlanTable plans;
  BetweenNodes nodes{communicators, parts.metrics};
  std::unique_ptr<Backend> backend;  // outlives the communicators, whose extensions are its
  CommunicatorTable communicators;
  Admission admission{communicators, buffers, plans, operations};
  CompletionSink completions{buffers, operations, parts.recorder, parts.metrics};
  SessionSet sessions;
};

}  // namespace arcomm
