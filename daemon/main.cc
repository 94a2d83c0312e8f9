// arcommd: flags, signals, exit status. Everything else is Daemon's.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstddef>
#include <iostream>
#include <string>
#include <vector>

#include "config/settings.h"
#include "daemon/daemon.h"
#include "daemon/exit_status.h"
#include "daemon/telemetry/log/log.h"
#include "proto/text.h"
#include "proto/version.h"

namespace {

using arcomm::exit_status_for;
using arcomm::kOk;
using arcomm::kUsage;

constexpr std::size_t kMostWarningBytes = 4096;

struct Flags {
  std::string config;
  std::string runtime_dir;
  std::vector<std::string> set;
  bool check_config = false;
  bool print_config = false;
};

int serve(arcomm::LoadRequest request, arcomm::Loaded loaded) {
  // Before any thread: they all inherit the mask, and the signals come through a descriptor.
  const sigset_t signals = arcomm::blocked_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  arcomm::prepare_environment(loaded.settings);
  std::signal(SIGXFSZ, SIG_IGN);  // memory past a file-size limit is an error to report, no death
  if (const arcomm::Status logging = arcomm::log::start(arcomm::log::options_from(loaded.settings));
      !logging) {
    std::cerr << "arcommd: " << logging.error().message << '\n';
    return exit_status_for(logging.error());
  }
  auto daemon = arcomm::Daemon::start(std::move(request), std::move(loaded));
  int status = kOk;
  if (daemon) {
    status = (*daemon)->run();
    (*daemon).reset();
  } else {
    arcomm::log::error("cannot start: {}", daemon.error().message);
    status = exit_status_for(daemon.error());
  }
  arcomm::log::stop();
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("arcommd: the node's daemon for collective communication between processes");
  app.add_option("--config", flags.config,
                 "settings file (default: $ARCOMM_CONFIG, then /etc/arcommd/arcommd.toml)");
  app.add_option("--runtime-dir", flags.runtime_dir,
                 "folder of the sockets; the same as --set runtime_dir=DIR");
  app.add_option("--set", flags.set,
                 "one setting, over file and environment: section.key=value; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--check-config", flags.check_config,
               "say whether the settings are right, and exit");
  app.add_flag("--print-config", flags.print_config,
               "print the settings in force with their sources, and exit");
  app.set_version_flag("--version", "arcommd " + std::to_string(arcomm::kVersionMajor) + "." +
                                        std::to_string(arcomm::kVersionMinor) + "." +
                                        std::to_string(arcomm::kVersionPatch));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    return app.exit(failure) == 0 ? kOk : kUsage;
  }
  if (!flags.runtime_dir.empty()) flags.set.push_back("runtime_dir=" + flags.runtime_dir);
  arcomm::LoadRequest request = arcomm::load_request(flags.config, flags.set);
  arcomm::Result<arcomm::Loaded> loaded = arcomm::load_daemon_settings(request);
  if (!loaded) {
    std::cerr << "arcommd: " << loaded.error().message << '\n';
    return exit_status_for(loaded.error());
  }
  for (const std::string& warning : loaded->warnings)
    std::cerr << "arcommd: warning: " << arcomm::safe_text(warning, kMostWarningBytes) << '\n';
  if (flags.print_config) {
    std::cout << arcomm::render_values(*loaded);
    return kOk;
  }
  if (flags.check_config) {
    std::cout << (loaded->path.empty() ? "no settings file; the defaults are right"
                                       : loaded->path + " is right")
              << '\n';
    return kOk;
  }
  return serve(std::move(request), std::move(loaded).value());
}
