// Runs the real arctl against a test's daemon and reads its JSON.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/processes/daemon_process.h"

namespace arcomm::support {

struct ArctlRun {
  int code = -1;  // exit code; -1: killed or past the deadline
  std::string output, errors;
  nlohmann::json json() const;  // discarded value when it does not parse
};

ArctlRun arctl(const DaemonProcess& daemon, std::vector<std::string> arguments,
               milliseconds deadline = milliseconds(20000));
// With --json appended; asserts exit code 0 (or 6: degraded) and that the output parses.
nlohmann::json arctl_json(const DaemonProcess& daemon, std::vector<std::string> arguments);

}  // namespace arcomm::support
