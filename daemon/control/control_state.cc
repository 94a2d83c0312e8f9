#include "daemon/control/control_state.h"

#include <utility>

#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {

ControlState::ControlState(EventLoop& its_loop, Metrics& its_metrics,
                           std::shared_ptr<const Settings> its_settings,
                           std::vector<WorkerRef> workers, std::chrono::milliseconds worker_limit)
    : loop(its_loop),
      metrics(its_metrics),
      settings(std::move(its_settings)),
      devices(std::move(workers)),
      replies(loop, worker_limit),
      quotas(settings->quota, read_machine(), metrics),
      gpu_shares(metrics, devices.memory_of_gpus()),
      at_workers(loop),
      in_call({.quotas = quotas, .groups = client_groups, .counts = metrics.in_call}) {
  gpu_shares.use_memory_limit(settings->quota.node_gpu_bytes);
}

void ControlState::use_settings(std::shared_ptr<const Settings> newer) {
  settings = std::move(newer);
  quotas.use_limits(settings->quota);
  gpu_shares.use_memory_limit(settings->quota.node_gpu_bytes);
}

Status ControlState::refuse_when_stopping() const {
  if (!stopping) return {};
  return error(ErrorCode::Unavailable, Reason::ShuttingDown,
               "the daemon is shutting down; attach to the next one");
}

Result<SessionEntry*> ControlState::authorize(const Caller& caller, const v1::SessionRef& session) {
  return ledger.authorize(session.session(), session.session_token(), caller.peer.uid);
}

}  // namespace arcomm
