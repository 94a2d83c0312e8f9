#include "daemon/in_force.h"

#include <utility>

#include "config/settings_table.h"
#include "daemon/control/peers/peer_addresses.h"
#include "daemon/plan/planner.h"
#include "daemon/shown.h"
#include "kernels/catalog.h"
#include "proto/text.h"

namespace arcomm {

Result<Loaded> load_daemon_settings(const LoadRequest& request) {
  Result<Loaded> loaded = load_settings(request);
  if (!loaded) return loaded;
  const auto forced = forced_algorithm(loaded->settings.gpu.algorithm);
  if (!forced) return forced.error();
  return loaded;
}

NetworkSetup network_setup_of(const Settings& settings) {
  return {.node = settings.net.name.empty() ? own_host_name() : settings.net.name,
          .streams = settings.net.streams,
          .interfaces = settings.net.interfaces,
          .peers = split_list(settings.net.peers)};
}

InForce::InForce(Loaded loaded)
    : loaded_(std::move(loaded)),
      settings_(std::make_shared<const Settings>(loaded_.settings)),
      warnings_(loaded_.warnings),
      tuning_(std::make_shared<const TuningTable>(default_tuning())),
      network_tuning_(std::make_shared<const NetworkTuning>()) {}

void InForce::load_tables() {
  const std::shared_ptr<const Settings> now = settings();
  Result<TuningTable> table = load_tuning(tuning_path(*now));
  if (table) {
    use(std::make_shared<const TuningTable>(*std::move(table)));
  } else if (table.error().code != ErrorCode::NotFound) {
    warn("the built-in tuning is used: " + table.error().message);
  }
  if (now->net.peers.empty()) return;
  Result<NetworkTuning> network =
      load_network_tuning(network_tuning_path(*now), network_setup_of(*now));
  if (network) {
    use(std::make_shared<const NetworkTuning>(*std::move(network)));
  } else if (network.error().code != ErrorCode::NotFound) {
    warn("what was measured of the network is not used: " + network.error().message);
  }
}

std::shared_ptr<const Settings> InForce::settings() const {
  const std::lock_guard lock(mutex_);
  return settings_;
}

std::shared_ptr<const TuningTable> InForce::tuning() const {
  const std::lock_guard lock(mutex_);
  return tuning_;
}

std::shared_ptr<const NetworkTuning> InForce::network_tuning() const {
  const std::lock_guard lock(mutex_);
  return network_tuning_;
}

std::vector<std::string> InForce::warnings() const {
  const std::lock_guard lock(mutex_);
  return warnings_;
}

InForce::Change InForce::reload(Loaded loaded) {
  const std::lock_guard lock(mutex_);
  Change change;
  change.diff = diff_settings(loaded_.settings, loaded.settings);
  loaded.settings = merge_reloadable(loaded_.settings, loaded.settings);
  loaded_ = std::move(loaded);
  settings_ = std::make_shared<const Settings>(loaded_.settings);
  change.settings = settings_;
  change.generation = ++generation_;
  return change;
}

void InForce::use(std::shared_ptr<const TuningTable> tuning) {
  const std::lock_guard lock(mutex_);
  tuning_ = std::move(tuning);
}

void InForce::use(std::shared_ptr<const NetworkTuning> tuning) {
  const std::lock_guard lock(mutex_);
  network_tuning_ = std::move(tuning);
}

void InForce::warn(std::string what) {
  const std::lock_guard lock(mutex_);
  warnings_.push_back(std::move(what));
}

void InForce::describe(v1::StatusReply& status) const {
  const std::lock_guard lock(mutex_);
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

}  // namespace arcomm
