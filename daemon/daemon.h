// The daemon as one object: what is made, in which order, and taken down in the reverse.
// Configuration, tuning and status of the whole live here; operations and clients in the rooms
// below.
//
// Thread: start(), run() and the destructor on the main thread, with the signals of
// blocked_signals() blocked since before any thread began. The DaemonActions may be called from any
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "config/settings.h"
#include "daemon/backend.h"
#include "daemon/control/control_plane.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/instance_lock.h"
#include "daemon/plan/network/network_tuning.h"
#include "daemon/plan/tuning_table.h"
#include "daemon/session/kept_rings.h"
#include "daemon/stall_watch.h"
#include "daemon/telemetry/flight_recorder.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "daemon/telemetry/metrics/metrics_server.h"
#include "daemon/telemetry/sd_notify.h"

namespace arcomm {

sigset_t blocked_signals();  // SIGTERM, SIGINT, SIGHUP, SIGUSR1: they come through a descriptor

// load_settings(), and what it takes the daemon to judge: names of kernels.
Result<Loaded> load_daemon_settings(const LoadRequest& request);

class Daemon final : public DaemonActions {
 public:
  // Everything serves when it returns, and systemd has been told. `request` is kept for reloads.
  static Result<std::unique_ptr<Daemon>> start(LoadRequest request, Loaded loaded);
  ~Daemon() override;

  // Until a signal or a dead worker ends it; drained and stopped when it returns. The process's
  // exit status.
  int run();

  void describe(v1::StatusReply& status) override;
  Result<v1::ReloadReply> reload() override;
  Status tune(const v1::TuneRequest& request, const std::function<void(v1::TuneReply)>& send,
              const std::function<bool()>& cancelled) override;
  Result<v1::ExplainReply> explain(const v1::ExplainRequest& request) override;
  std::string algorithm_name(std::uint8_t algorithm) override;
  const FlightLog& previous_operations() const override { return previous_; }

 private:
  struct Served {
    ServedDevices devices;
    std::unique_ptr<FlightRecorder> recorder;
    std::unique_ptr<DeviceWorker> worker;
    std::thread thread;
  };

  Daemon(LoadRequest request, Loaded loaded);
  Status open();
  Status open_workers();
  // Takes flight recorders out of what systemd passed and reads them.
  void read_previous_recorders(std::vector<InheritedSocket>& passed);
  // What this version does not know would otherwise be passed on from daemon to daemon.
  void unstore_strangers(const std::vector<InheritedSocket>& passed);
  void load_tuning_table();
  void load_network_tuning();
  void open_metrics();
  // The one whose algorithms have a tuning table.
  Device& host_device() const;
  // 0 in the request: the tuners' own defaults.
  Result<TuningTable> measure_host(const v1::TuneRequest& request,
                                   const std::function<void(v1::TuneReply)>& send,
                                   const std::function<bool()>& cancelled);
  Result<GpuTuningTable> measure_gpus(const v1::TuneRequest& request,
                                      const std::function<void(v1::TuneReply)>& send,
                                      const std::function<bool()>& cancelled);
  // What a request's `device` means here.
  Result<bool> asks_for_gpus(const std::string& device) const;
  void use_tuning(const std::shared_ptr<const TuningTable>& table);
  Status tune_network(const v1::TuneRequest& request,
                      const std::function<void(v1::TuneReply)>& send,
                      const std::function<bool()>& cancelled);
  Result<std::vector<SurveyedLink>> survey_links(const v1::TuneRequest& request,
                                                 const std::function<void(v1::TuneReply)>& send,
                                                 const std::function<bool()>& cancelled);
  // What a step between nodes costs: the ways to other daemons, and the flags of GPUs.
  Status bench_network(const v1::TuneRequest& request,
                       const std::function<void(v1::TuneReply)>& send,
                       const std::function<bool()>& cancelled);
  void use_network_tuning(const std::shared_ptr<const NetworkTuning>& tuning);
  // Returns the signal that ends the process, 0 when a worker ended by itself.
  int wait_for_end(int signals);
  void look_for_stalls();
  void dump_recorders();
  void drain(int signals);
  [[noreturn]] void leave_devices();
  void stop_serving();
  void stop();

  const LoadRequest request_;
  const std::chrono::steady_clock::time_point started_;
  ServiceManager service_;
  Metrics metrics_;
  KeptRings kept_rings_{service_, metrics_};
  std::unique_ptr<InstanceLock> lock_;    // before the sockets, after them at the end
  std::unique_ptr<NodeBackend> backend_;  // once open_workers() is through, without its devices
  FlightLog previous_;                    // not changed once open() is through
  std::vector<Served> served_;
  UniqueFd worker_ended_;  // eventfd: a worker's run() returned
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<MetricsServer> metrics_server_;
  StallWatch watch_;
  std::string stuck_;  // what the watch last found stuck
  std::atomic<bool> stopping_{false};

  std::mutex reload_mutex_;  // one reload at a time
  std::mutex mutex_;         // guards what follows
  Loaded loaded_;            // what is in force
  std::uint64_t generation_ = 1;
  std::vector<std::string> warnings_;
  std::shared_ptr<const TuningTable> tuning_;
  std::shared_ptr<const NetworkTuning> network_tuning_;  // never null once it serves
};

}  // namespace arcomm
