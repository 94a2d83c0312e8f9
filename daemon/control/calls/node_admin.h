// What operators may ask for: status, sessions, communicators, metrics, trace, reload, tune,
// explain. Thread: the control loop; what blocks (reload, tune) runs on threads of its own, through
// DaemonActions.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/control/access/caller.h"
#include "daemon/control/calls/status/limit_status.h"
#include "daemon/control/calls/worker_replies.h"
#include "daemon/control/daemon_actions.h"
#include "daemon/control/node_control.h"
#include "daemon/control/peers/peers.h"
#include "daemon/control/rpc/rpc_stream.h"
#include "daemon/control/rpc/task_thread.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

class NodeAdmin {
 public:
  NodeAdmin(EventLoop& loop, Metrics& metrics, NodeControl& control, DaemonActions& actions);
  ~NodeAdmin() { stop(); }
  // Ends a running tune and joins. After the loop has stopped, or before it started.
  void stop();
  void begin_stop() { stopping_ = true; }  // any thread
  // Shown in the status from then on; outlives the loop. Before the loop runs.
  void use_connections(const FairShare& connections) { access_.connections = &connections; }
  void use_calls(std::function<FairShare()> calls) { access_.calls = std::move(calls); }
  void use_peers(Peers& peers) { peers_ = &peers; }

  void get_status(const Caller& caller, const v1::Empty& request, Answer<v1::StatusReply> answer);
  void list_sessions(const Caller& caller, const v1::Empty& request,
                     Answer<v1::SessionsReply> answer);
  void list_communicators(const Caller& caller, const v1::Empty& request,
                          Answer<v1::CommunicatorsReply> answer);
  void get_metrics(const Caller& caller, const v1::Empty& request,
                   const Answer<v1::MetricsReply>& answer);
  void trace(const Caller& caller, const v1::TraceRequest& request,
             const Answer<v1::TraceReply>& answer);
  void reload(const Caller& caller, const v1::Empty& request, Answer<v1::ReloadReply> answer);
  void tune(const Caller& caller, const v1::TuneRequest& request, RpcStream<v1::TuneReply> stream);
  void explain(const Caller& caller, const v1::ExplainRequest& request,
               const Answer<v1::ExplainReply>& answer);
  void get_net(const Caller& caller, const v1::Empty& request, Answer<v1::NetReply> answer);

 private:
  using Views = std::vector<Result<WorkerSnapshot>>;  // one per worker, in order
  // Asks all workers; a stuck one is an Error in its place after a second.
  void inspect(const std::function<void(const Views&)>& then);

  Metrics& metrics_;
  AccessShares access_;
  NodeControl& control_;
  DaemonActions& actions_;
  Peers* peers_ = nullptr;  // none: this daemon knows no other
  WorkerReplies replies_;
  TaskThread files_;  // reload
  std::thread tuner_;
  std::shared_ptr<std::atomic<bool>> tuning_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> stopping_{false};
};

}  // namespace arcomm
