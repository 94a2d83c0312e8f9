// What the calls of every kind work on: the sessions, what each uid has taken, the devices, the
// workers' answers to come. There is one, NodeControl's; each class of calls refers to it and owns
// what concerns that class alone. Thread: the control loop.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "config/settings.h"
#include "daemon/control/access/caller.h"
#include "daemon/control/calls/communicators/in_call_exchanges.h"
#include "daemon/control/calls/worker_replies.h"
#include "daemon/control/descriptors/fd_closer.h"
#include "daemon/control/limits/charges_at_workers.h"
#include "daemon/control/limits/client_groups.h"
#include "daemon/control/limits/gpu_shares.h"
#include "daemon/control/limits/quota.h"
#include "daemon/control/node_devices.h"
#include "daemon/control/peers/peer_messenger.h"
#include "daemon/control/rpc/event_loop.h"
#include "daemon/control/session_ledger.h"
#include "daemon/plan/network/network_tuning.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

class Metrics;
namespace v1 = arcommd::v1;

// The answer of a call that returns nothing.
inline Result<v1::Empty> empty_or(const Status& status) {
  if (!status) return status.error();
  return v1::Empty{};
}

struct ControlState {
  ControlState(EventLoop& its_loop, Metrics& its_metrics,
               std::shared_ptr<const Settings> its_settings, std::vector<WorkerRef> workers,
               std::chrono::milliseconds worker_limit = kWorkerLimit);

  // The session that the caller may speak for.
  Result<SessionEntry*> authorize(const Caller& caller, const v1::SessionRef& session);
  // ShuttingDown once `stopping` is set: for calls that would take something new.
  Status refuse_when_stopping() const;
  DeviceWorker& worker_of(const SessionEntry& session) const {
    return *devices.workers()[session.worker].worker;
  }
  void use_settings(std::shared_ptr<const Settings> newer);

  EventLoop& loop;
  Metrics& metrics;
  std::shared_ptr<const Settings> settings;
  NodeDevices devices;
  WorkerReplies replies;
  QuotaBook quotas;
  ClientGroups client_groups;
  GpuShares gpu_shares;
  ChargesAtWorkers at_workers;
  InCallExchanges in_call;
  SessionLedger ledger;    // after these five: entries hold charges, shares and exchanges
  FdCloser memory_closer;  // of memory's descriptors, whose last reference may be ours
  const PeerMessenger* peers = nullptr;  // to other daemons, where there is a network
  std::shared_ptr<const NetworkTuning> network = std::make_shared<const NetworkTuning>();
  std::shared_ptr<const TuningTable> tuning = std::make_shared<const TuningTable>();
  bool stopping = false;
};

}  // namespace arcomm
