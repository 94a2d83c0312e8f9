// What is in force: the settings with where each comes from, the tuning tables, and what there is
// to be warned of. A value is replaced as a whole, never changed: a reader keeps the value that it
// read. Thread: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "config/settings.h"
#include "daemon/plan/network/network_tuning.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

namespace v1 = arcommd::v1;

// load_settings(), and what it takes the daemon to judge: names of kernels.
Result<Loaded> load_daemon_settings(const LoadRequest& request);

// What figures of the network must have been measured under to hold here.
NetworkSetup network_setup_of(const Settings& settings);

class InForce {
 public:
  // The tables are the built-in ones until load_tables().
  explicit InForce(Loaded loaded);

  // Those of the state folder. One that cannot be read is a warning: the node serves without it.
  void load_tables();

  // None is null.
  std::shared_ptr<const Settings> settings() const;
  std::shared_ptr<const TuningTable> tuning() const;
  std::shared_ptr<const NetworkTuning> network_tuning() const;
  std::vector<std::string> warnings() const;

  struct Change {
    SettingsDiff diff;
    std::shared_ptr<const Settings> settings;
    std::uint64_t generation = 0;
  };
  // Takes what may change without a restart.
  Change reload(Loaded loaded);
  void use(std::shared_ptr<const TuningTable> tuning);
  void use(std::shared_ptr<const NetworkTuning> tuning);
  void warn(std::string what);

  // Configuration, tuning, warnings and settings.
  void describe(v1::StatusReply& status) const;

 private:
  mutable std::mutex mutex_;
  Loaded loaded_;
  std::shared_ptr<const Settings> settings_;  // a copy of those in loaded_
  std::uint64_t generation_ = 1;
  std::vector<std::string> warnings_;
  std::shared_ptr<const TuningTable> tuning_;
  std::shared_ptr<const NetworkTuning> network_tuning_;
};

}  // namespace arcomm
