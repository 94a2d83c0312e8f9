// The control plane as one piece: loop, sockets, services. The daemon starts it last and stops it
// first. Thread: start() and the other public functions on the daemon's main thread; events() may
// be called on any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/access/connection_gate.h"
#include "daemon/control/access/listener.h"
#include "daemon/control/calls/node_admin.h"
#include "daemon/control/limits/machine_limits.h"
#include "daemon/control/node_control.h"
#include "daemon/control/peers/links/link_survey.h"
#include "daemon/control/peers/peers.h"
#include "daemon/control/rpc/rpc_heartbeat.h"
#include "daemon/control/rpc/rpc_server.h"

namespace arcomm {

class ControlPlane {
 public:
  struct Parts {
    Metrics& metrics;
    std::shared_ptr<const Settings> settings;
    KeptRings& kept_rings;
    DaemonActions& actions;
  };
  static Result<std::unique_ptr<ControlPlane>> create(Parts parts);
  ~ControlPlane();

  // For the workers' construction, which comes before serve(). Functions that outlive this object
  // do nothing. worker: its index among those of serve().
  WorkerEvents events(std::size_t worker = 0);
  // Begins to accept. The workers run already, or will soon.
  Status serve(std::vector<WorkerRef> workers, std::vector<ListeningSocket> sockets);

  // How often the loop has come round, and something for it to do: for who watches it. Any thread.
  std::uint64_t turns() const { return loop_->turns(); }
  void nudge() {
    loop_->post([] {});
  }

  // The same of gRPC's threads (rpc_heartbeat.h). On the main thread, until stop().
  std::uint64_t rpc_beats() { return heartbeat_->count(); }
  void nudge_rpc() { heartbeat_->nudge(); }

  void use_settings(const std::shared_ptr<const Settings>& settings);
  // Of the links and communicators that are made from now on; also before serve().
  void use_network_tuning(const std::shared_ptr<const NetworkTuning>& tuning);
  void use_tuning(const std::shared_ptr<const TuningTable>& tuning);
  // Blocks for the whole measurement (link_survey.h). Any thread but the loop's; after serve().
  Result<std::vector<SurveyedLink>> survey_links(const std::vector<std::string>& wanted,
                                                 const LinkSurvey::Progress& progress,
                                                 const std::function<bool()>& cancelled) {
    return LinkSurvey(loop_, reachable_peers_).run(wanted, progress, cancelled);
  }
  // Refuses new sessions, communicators and memory with ShuttingDown; answers, releases and
  // detaches go on.
  void begin_shutdown();
  // Closes sockets and connections and ends the threads. The workers may answer late, so they are
  // stopped between stop() and the destructor.
  void stop();

 private:
  explicit ControlPlane(Parts parts) : parts_(std::move(parts)) {}

  Parts parts_;
  const MachineFacts machine_ = read_machine();
  std::shared_ptr<EventLoop> loop_;
  TaskThread memory_thread_;
  std::shared_ptr<NodeControl*>
      reachable_;  // points to null before serve() and after stop(); touched on the loop
  std::unique_ptr<NodeControl> control_;
  std::unique_ptr<NodeAdmin> admin_;
  std::unique_ptr<ConnectionGate> gate_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Peers> peers_;             // none where the settings name no other daemons
  std::shared_ptr<Peers*> reachable_peers_;  // as reachable_
  std::unique_ptr<RpcHeartbeat> heartbeat_;  // once there is a server
  std::thread loop_thread_;
  std::atomic<std::uint64_t> reloads_{0};
};

}  // namespace arcomm
