#include "daemon/operator/operator_actions.h"

#include <unistd.h>

#include <utility>

#include "daemon/operator/explanation.h"
#include "daemon/plan/recorded_algorithm.h"
#include "daemon/shown.h"
#include "daemon/telemetry/log/log.h"
#include "proto/version.h"

namespace arcomm {

OperatorActions::OperatorActions(Parts parts)
    : parts_(std::move(parts)),
      node_tuner_(parts_.in_force, parts_.backend, parts_.workers, parts_.use_tuning),
      network_tuner_(parts_.in_force, parts_.workers, parts_.control) {}

void OperatorActions::describe(v1::StatusReply& status) {
  status.set_version(kVersionNumber);
  status.set_pid(::getpid());
  const auto uptime = std::chrono::steady_clock::now() - started_;
  status.set_uptime_ms(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(uptime).count()));
  status.set_backend(shown(parts_.backend.name));
  if (!parts_.backend.degraded.empty() && status.state() == "ready")
    status.set_state("degraded: " + shown(parts_.backend.degraded));
  parts_.in_force.describe(status);
}

Result<v1::ReloadReply> OperatorActions::reload() {
  const std::lock_guard one_at_a_time(reload_mutex_);
  if (stopping_) return shutting_down();
  ServiceManager& service = parts_.service;
  service.reloading();
  Result<Loaded> loaded = load_daemon_settings(parts_.request);
  if (!loaded) {
    parts_.metrics.config_reloads_failed.add();
    log::error("reload failed, the old settings stay in force: {}", loaded.error().message);
    service.ready("reload failed, the old settings stay in force: " + loaded.error().message);
    return std::move(loaded).error();
  }
  const InForce::Change change = parts_.in_force.reload(std::move(loaded).value());
  log::set_level(change.settings->log.level);
  log::set_format(change.settings->log.format);
  if (const Status reopened = log::reopen(); !reopened) log::warn("{}", reopened.error().message);
  parts_.use_settings(change.settings);
  parts_.metrics.config_reloads_ok.add();
  v1::ReloadReply reply;
  reply.set_config_generation(change.generation);
  for (const std::string& what : change.diff.reloadable) {
    log::info("reload: {}", what);
    reply.add_changed(shown(what));
  }
  for (const std::string& what : change.diff.needs_restart) {
    log::warn("reload: {} needs a restart", what);
    reply.add_needs_restart(shown(what));
  }
  log::info("reloaded: settings of generation {} are in force", change.generation);
  service.ready("settings of generation " + std::to_string(change.generation));
  return reply;
}

Status OperatorActions::tune(const v1::TuneRequest& request,
                             const std::function<void(v1::TuneReply)>& send,
                             const std::function<bool()>& cancelled) {
  const TuneCall call{.request = request, .send = send, .cancelled = cancelled};
  if (request.bench()) return network_tuner_.bench(call);
  if (request.network()) return network_tuner_.tune(call);
  const Result<bool> on_gpus = asks_for_gpus(request.device());
  if (!on_gpus) return on_gpus.error();
  return node_tuner_.tune(call, *on_gpus);
}

Result<v1::ExplainReply> OperatorActions::explain(const v1::ExplainRequest& request) {
  const Result<bool> on_gpus = asks_for_gpus(request.device());
  if (!on_gpus) return on_gpus.error();
  return explain_all_reduce(request, *on_gpus, parts_.in_force);
}

Result<bool> OperatorActions::asks_for_gpus(const std::string& device) const {
  if (device == "host") return false;
  if (device == "gpu") return true;
  if (device.empty()) return parts_.workers.serve_gpus();
  return error(ErrorCode::InvalidArgument, Reason::BadValue, "device \"", device,
               "\" is unknown here: ask for host or gpu");
}

std::string OperatorActions::algorithm_name(std::uint8_t algorithm) {
  return std::string(name_of_recorded(algorithm));
}

}  // namespace arcomm
