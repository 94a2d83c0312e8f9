// One scrape of a daemon's metrics socket, parsed from the Prometheus text format.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "tests/support/processes/daemon_process.h"

namespace arcomm::support {

class Metrics {
 public:
  // Asserts that the answer came within two seconds and parses.
  static Metrics scrape(const DaemonProcess& daemon);
  static Metrics parse(std::string_view text);

  // The sum over all samples of that name whose labels contain every `label` given
  // ("reason=\"quota\"").
  double value(std::string_view name, std::initializer_list<std::string_view> labels = {}) const;
  bool has(std::string_view name) const;
  const std::map<std::string, double>& samples() const { return samples_; }

 private:
  std::map<std::string, double> samples_;  // "name{labels}" -> value
};

}  // namespace arcomm::support
