#include "tests/support/processes/arctl_run.h"

#include <gtest/gtest.h>

#include <utility>

namespace arcomm::support {

nlohmann::json ArctlRun::json() const {
  return nlohmann::json::parse(output, nullptr, false);
}

ArctlRun arctl(const DaemonProcess& daemon, std::vector<std::string> arguments,
               milliseconds deadline) {
  arguments.insert(arguments.begin(), arctl_binary());
  Ran ran = run_to_end(std::move(arguments), daemon.environment(), deadline);
  return {ran.exit && ran.exit->signal == 0 ? ran.exit->code : -1, std::move(ran.output),
          std::move(ran.errors)};
}

nlohmann::json arctl_json(const DaemonProcess& daemon, std::vector<std::string> arguments) {
  std::string shown;
  for (const std::string& argument : arguments) shown += " " + argument;
  arguments.emplace_back("--json");
  const ArctlRun run = arctl(daemon, std::move(arguments));
  EXPECT_TRUE(run.code == 0 || run.code == 6)
      << "arctl" << shown << " gave " << run.code << ": " << run.errors;
  nlohmann::json parsed = run.json();
  EXPECT_FALSE(parsed.is_discarded()) << "arctl" << shown << " --json wrote: " << run.output;
  return parsed;
}

}  // namespace arcomm::support
