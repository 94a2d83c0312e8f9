// What operators may ask of the daemon as a whole: status, reload, tune.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "config/settings_table.h"
#include "daemon/daemon.h"
#include "daemon/exec/tune/gpu_tuner.h"
#include "daemon/exec/tune/tuner.h"
#include "daemon/plan/chosen.h"
#include "daemon/plan/planner.h"
#include "daemon/plan/recorded_algorithm.h"
#include "daemon/telemetry/log/log.h"
#include "kernels/catalog.h"
#include "proto/text.h"
#include "proto/version.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kLongestTuneMs = 3'600'000;
constexpr std::size_t kMostTextBytes = 4096;  // of a path, a value, a warning

// Paths, the environment and configuration files hold whatever bytes they hold, and a reply with a
// string that is no UTF-8 is one that arctl cannot read.
std::string shown(std::string_view text) {
  return safe_text(text, kMostTextBytes);
}

// Of either table.
template <typename Point>
void fill(const Point& point, v1::TunePoint& wire) {
  wire.set_bytes(point.bytes);
  wire.set_ranks(static_cast<std::int32_t>(point.ranks));
  wire.set_algorithm(std::string(name_of(point.algorithm)));
  wire.set_microseconds(point.microseconds);
  if constexpr (requires { point.type_class; })
    wire.set_type_class(std::string(text_of(point.type_class)));
}

// Of either tuner.
template <typename Step>
v1::TuneReply to_wire(const Step& step) {
  v1::TuneReply reply;
  reply.set_progress(step.progress);
  fill(step.point, *reply.mutable_point());
  return reply;
}

// What was measured, with a mark at what is taken from now on.
void add_marked(const TuningTable& table, const Settings& settings, bool on_gpus,
                v1::TuneReply& reply) {
  if (on_gpus) {
    // Checked when the settings were loaded.
    const auto forced = forced_algorithm(settings.gpu.algorithm).value();
    for (const GpuTuningPoint& point : table.gpu.points) {
      v1::TunePoint& wire = *reply.add_points();
      fill(point, wire);
      wire.set_chosen(is_chosen(table.gpu, forced, settings.gpu.in_stream, point));
    }
    return;
  }
  const DeviceShape shape = host_shape(settings.host.streams);
  for (const TuningPoint& point : table.points) {
    v1::TunePoint& wire = *reply.add_points();
    fill(point, wire);
    wire.set_chosen(is_chosen(table, shape, point));
  }
}

}  // namespace

Result<Loaded> load_daemon_settings(const LoadRequest& request) {
  Result<Loaded> loaded = load_settings(request);
  if (!loaded) return loaded;
  const auto forced = forced_algorithm(loaded->settings.gpu.algorithm);
  if (!forced) return forced.error();
  return loaded;
}

void Daemon::describe(v1::StatusReply& status) {
  status.set_version(kVersionNumber);
  status.set_pid(::getpid());
  const auto uptime = std::chrono::steady_clock::now() - started_;
  status.set_uptime_ms(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(uptime).count()));
  status.set_backend(shown(backend_->name));
  if (!backend_->degraded.empty() && status.state() == "ready")
    status.set_state("degraded: " + shown(backend_->degraded));
  std::lock_guard lock(mutex_);
  status.set_config_file(shown(loaded_.path));
  status.set_config_generation(generation_);
  status.set_tuning(shown(tuning_->source));
  for (const std::string& warning : warnings_) status.add_warnings(shown(warning));
  const auto rows = settings_table();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    v1::Setting& setting = *status.add_settings();
    setting.set_name(rows[i].name());
    setting.set_value(shown(setting_toml(rows[i], loaded_.settings)));
    setting.set_source(std::string(
        text_of(i < loaded_.sources.size() ? loaded_.sources[i] : SettingSource::Default)));
  }
}

Result<v1::ReloadReply> Daemon::reload() {
  std::lock_guard one_at_a_time(reload_mutex_);
  if (stopping_) return shutting_down();
  service_.reloading();
  Result<Loaded> loaded = load_daemon_settings(request_);
  if (!loaded) {
    metrics_.config_reloads_failed.add();
    log::error("reload failed, the old settings stay in force: {}", loaded.error().message);
    service_.ready("reload failed, the old settings stay in force: " + loaded.error().message);
    return std::move(loaded).error();
  }
  SettingsDiff diff;
  std::shared_ptr<const Settings> settings;
  std::uint64_t generation = 0;
  {
    std::lock_guard lock(mutex_);
    diff = diff_settings(loaded_.settings, loaded->settings);
    loaded->settings = merge_reloadable(loaded_.settings, loaded->settings);
    loaded_ = std::move(loaded).value();
    generation = ++generation_;
    settings = std::make_shared<const Settings>(loaded_.settings);
  }
  log::set_level(settings->log.level);
  log::set_format(settings->log.format);
  if (const Status reopened = log::reopen(); !reopened) log::warn("{}", reopened.error().message);
  control_->use_settings(settings);
  for (const Served& one : served_) one.worker->use_settings(settings);
  metrics_.config_reloads_ok.add();
  v1::ReloadReply reply;
  reply.set_config_generation(generation);
  for (const std::string& change : diff.reloadable) {
    log::info("reload: {}", change);
    reply.add_changed(shown(change));
  }
  for (const std::string& change : diff.needs_restart) {
    log::warn("reload: {} needs a restart", change);
    reply.add_needs_restart(shown(change));
  }
  log::info("reloaded: settings of generation {} are in force", generation);
  service_.ready("settings of generation " + std::to_string(generation));
  return reply;
}

// A table that cannot be read must not keep the node from serving: the built-in one always works.
void Daemon::load_tuning_table() {
  Result<TuningTable> table = load_tuning(tuning_path(loaded_.settings));
  if (!table && table.error().code != ErrorCode::NotFound) {
    warnings_.push_back("the built-in tuning is used: " + table.error().message);
  }
  tuning_ =
      std::make_shared<const TuningTable>(table ? std::move(table).value() : default_tuning());
}

void Daemon::use_tuning(const std::shared_ptr<const TuningTable>& table) {
  {
    std::lock_guard lock(mutex_);
    tuning_ = table;
  }
  for (const Served& one : served_) one.worker->use_tuning(table);
}

Result<TuningTable> Daemon::measure_host(const v1::TuneRequest& request,
                                         const std::function<void(v1::TuneReply)>& send,
                                         const std::function<bool()>& cancelled) {
  TuneOptions options;
  options.max_bytes = request.max_bytes();
  options.budget = std::chrono::milliseconds(std::min(request.budget_ms(), kLongestTuneMs));
  {
    std::lock_guard lock(mutex_);
    options.threads = loaded_.settings.host.streams;
  }
  return arcomm::tune(host_device(), options, [&](const TuneStep& step) {
    send(to_wire(step));
    return !cancelled();
  });
}

Result<GpuTuningTable> Daemon::measure_gpus(const v1::TuneRequest& request,
                                            const std::function<void(v1::TuneReply)>& send,
                                            const std::function<bool()>& cancelled) {
  const Served& first = served_.front();
  if (!first.devices.on_gpus()) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "this daemon serves no GPU: arctl status and its log say why");
  }
  GpuTuneOptions options;
  options.max_bytes = request.max_bytes();
  options.budget = std::chrono::milliseconds(std::min(request.budget_ms(), kLongestTuneMs));
  Result<GpuTuningTable> measured =
      tune_gpus(*first.worker, static_cast<std::uint32_t>(first.devices.devices.size()), options,
                [&](const GpuTuneStep& step) {
                  send(to_wire(step));
                  return !cancelled();
                });
  if (measured) measured->machine = backend_->name;
  return measured;
}

Status Daemon::tune(const v1::TuneRequest& request, const std::function<void(v1::TuneReply)>& send,
                    const std::function<bool()>& cancelled) {
  if (request.bench()) return bench_network(request, send, cancelled);
  if (request.network()) return tune_network(request, send, cancelled);
  const Result<bool> on_gpus = asks_for_gpus(request.device());
  if (!on_gpus) return on_gpus.error();
  TuningTable table;
  Settings settings;
  {
    std::lock_guard lock(mutex_);
    table = *tuning_;  // what is not measured now stays
    settings = loaded_.settings;
  }
  const std::string path = tuning_path(settings);
  if (*on_gpus) {
    Result<GpuTuningTable> measured = measure_gpus(request, send, cancelled);
    if (!measured) return measured.error();
    table.gpu = std::move(measured).value();
    table.gpu.source = path;
  } else {
    Result<TuningTable> measured = measure_host(request, send, cancelled);
    if (!measured) return measured.error();
    measured->gpu = std::move(table.gpu);
    table = std::move(measured).value();
  }
  table.source = path;
  if (cancelled())
    return error(ErrorCode::Cancelled, Reason::None, "the tune was stopped; the old table stays");
  v1::TuneReply last;
  last.set_progress(1);
  last.set_finished(true);
  last.set_table(print_tuning(table));
  add_marked(table, settings, *on_gpus, last);
  if (!request.dry_run()) {
    // Saved first: what is in force is then also what a restart finds.
    ARC_RETURN_IF_ERROR(save_tuning(table, path));
    last.set_saved_as(shown(path));
    use_tuning(std::make_shared<const TuningTable>(table));
    log::info("tuned {}: {} points, saved as {}", *on_gpus ? "the GPUs" : "the host",
              *on_gpus ? table.gpu.points.size() : table.points.size(), path);
  }
  send(std::move(last));
  return {};
}

Result<bool> Daemon::asks_for_gpus(const std::string& device) const {
  if (device == "host") return false;
  if (device == "gpu") return true;
  if (device.empty()) return served_.front().devices.on_gpus();
  return error(ErrorCode::InvalidArgument, Reason::BadValue, "device \"", device,
               "\" is unknown here: ask for host or gpu");
}

std::string Daemon::algorithm_name(std::uint8_t algorithm) {
  return std::string(name_of_recorded(algorithm));
}

}  // namespace arcomm
