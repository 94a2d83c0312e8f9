// The daemon as one object: what is made, in which order, and taken down in the reverse. What
// operators ask of the whole is answered in operator/; operations and clients live in the rooms
// below.
//
// Thread: the main thread, with the signals of blocked_signals() blocked since before any thread
// began.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "config/settings.h"
#include "daemon/control/control_plane.h"
#include "daemon/in_force.h"
#include "daemon/instance_lock.h"
#include "daemon/node_backend.h"
#include "daemon/operator/operator_actions.h"
#include "daemon/session/kept_rings.h"
#include "daemon/stall_watch.h"
#include "daemon/telemetry/kept_recorders.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "daemon/telemetry/metrics/metrics_server.h"
#include "daemon/telemetry/sd_notify.h"
#include "daemon/workers.h"

namespace arcomm {

sigset_t blocked_signals();  // SIGTERM, SIGINT, SIGHUP, SIGUSR1: they come through a descriptor

class Daemon {
 public:
  // Everything serves when it returns, and systemd has been told. `request` is kept for reloads.
  static Result<std::unique_ptr<Daemon>> start(LoadRequest request, Loaded loaded);
  ~Daemon();

  // Until a signal or a dead worker ends it; drained and stopped when it returns. The process's
  // exit status.
  int run();

 private:
  Daemon(LoadRequest request, Loaded loaded);
  Status open();
  Status open_workers();
  // What this version does not know would otherwise be passed on from daemon to daemon.
  void unstore_strangers(const std::vector<InheritedSocket>& passed);
  void open_metrics();
  // Returns the signal that ends the process, 0 when a worker ended by itself.
  int wait_for_end(int signals);
  void look_for_stalls();
  void drain(int signals);
  [[noreturn]] void leave_devices();
  void stop();

  ServiceManager service_;
  Metrics metrics_;
  InForce in_force_;
  KeptRings kept_rings_{service_, metrics_};
  KeptRecorders kept_recorders_{service_};
  std::unique_ptr<InstanceLock> lock_;  // before the sockets, after them at the end
  NodeBackend backend_;                 // without its devices once open_workers() is through
  Workers workers_;
  OperatorActions actions_;
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<MetricsServer> metrics_server_;
  StallWatch watch_;
  std::string stuck_;  // what the watch last found stuck
};

}  // namespace arcomm
