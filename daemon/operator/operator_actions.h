// What operators may ask of the daemon as a whole: status, reload, tune, explain.
// Thread: any; calls may come at the same time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "config/settings.h"
#include "daemon/control/daemon_actions.h"
#include "daemon/in_force.h"
#include "daemon/node_backend.h"
#include "daemon/operator/network_tuner.h"
#include "daemon/operator/node_tuner.h"
#include "daemon/telemetry/kept_recorders.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "daemon/telemetry/sd_notify.h"
#include "daemon/workers.h"

namespace arcomm {

class OperatorActions final : public DaemonActions {
 public:
  struct Parts {
    LoadRequest request;  // what a reload loads
    InForce& in_force;
    ServiceManager& service;
    Metrics& metrics;
    const NodeBackend& backend;
    const Workers& workers;
    const KeptRecorders& kept_recorders;
    std::function<void(const std::shared_ptr<const Settings>&)> use_settings;  // after a reload
    NodeTuner::Use use_tuning;
    NetworkTuner::Control control;
  };
  // Nothing is asked of it before all of them serve.
  explicit OperatorActions(Parts parts);

  // No reload from now on.
  void begin_shutdown() { stopping_ = true; }

  void describe(v1::StatusReply& status) override;
  Result<v1::ReloadReply> reload() override;
  Status tune(const v1::TuneRequest& request, const std::function<void(v1::TuneReply)>& send,
              const std::function<bool()>& cancelled) override;
  Result<v1::ExplainReply> explain(const v1::ExplainRequest& request) override;
  std::string algorithm_name(std::uint8_t algorithm) override;
  const FlightLog& previous_operations() const override { return parts_.kept_recorders.previous(); }

 private:
  // What a request's `device` means here.
  Result<bool> asks_for_gpus(const std::string& device) const;

  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  const Parts parts_;
  NodeTuner node_tuner_;
  NetworkTuner network_tuner_;
  std::atomic<bool> stopping_{false};
  std::mutex reload_mutex_;  // one reload at a time
};

}  // namespace arcomm
