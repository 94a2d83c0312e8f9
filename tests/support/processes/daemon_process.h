// The real arcommd, as a child process, with runtime and state folders of its own.
//
//   auto daemon = DaemonProcess::start();                       // ready on return, or a failed
//   assertion and nullptr arcConfig_t config = ARC_CONFIG_INITIALIZER; config.runtime_dir =
//   daemon->runtime_dir().c_str();         // or daemon->environment() for a child
//   ...
//   daemon->stop();                                             // SIGTERM; asserts a clean end and
//   nothing left over
//
// Thread: one at a time. Ownership: the process, its folders (unless Options::folder) and its
// notify socket.
#pragma once

#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/processes/child_process.h"
#include "tests/support/scratch_folder.h"

namespace arcomm::support {

std::string daemon_binary();       // <build>/daemon/arcommd, or $ARCOMM_TEST_DAEMON
std::string arctl_binary();        // <build>/client/arctl/arctl, or $ARCOMM_TEST_ARCTL
std::string test_client_binary();  // <build>/tests/support/arcomm_test_client

class DaemonProcess {
 public:
  struct Options {
    std::map<std::string, std::string> settings;  // --set name=value
    std::string config_text;  // written to arcommd.toml and passed by --config when not empty
    std::vector<std::string> environment;               // "NAME=value"
    std::vector<std::string> arguments;                 // appended to the command line
    std::string folder;                                 // kept across daemons; "" for a fresh one
    std::vector<std::pair<int, std::uint64_t>> limits;  // RLIMIT_*
    int stderr_fd = -1;                                 // where the log goes instead of a file
    bool metrics = true;                                // a metrics unix socket of its own
    milliseconds start_deadline{20000};
    bool expect_ready = true;  // false: return without waiting; wait_ready() or wait_exit() follow
  };

  static std::unique_ptr<DaemonProcess> start(Options options);
  static std::unique_ptr<DaemonProcess> start() { return start(Options()); }
  ~DaemonProcess();

  pid_t pid() const { return child_.pid(); }
  const std::string& folder() const { return folder_; }
  std::string runtime_dir() const { return folder_ + "/run"; }
  std::string state_dir() const { return folder_ + "/state"; }
  std::string config_path() const { return folder_ + "/arcommd.toml"; }
  std::string metrics_socket() const { return folder_ + "/metrics.sock"; }
  std::string client_socket() const { return runtime_dir() + "/client.sock"; }
  std::string admin_socket() const { return runtime_dir() + "/admin.sock"; }
  std::string fd_socket() const { return runtime_dir() + "/fd.sock"; }
  // What a client process needs to find this daemon.
  std::vector<std::string> environment() const;

  bool wait_ready(milliseconds deadline);
  bool running() { return child_.running(); }
  // SIGTERM, then its exit status within the deadline; asserts status 0, no sanitizer report and no
  // socket left.
  void stop(milliseconds deadline = milliseconds(15000));
  // Waits for an end that the test expects; asserts nothing.
  std::optional<Exit> wait_exit(milliseconds deadline) { return child_.wait(deadline); }
  void kill() { child_.kill(); }  // SIGKILL, reaped on return; the folders stay
  void signal(int number) { child_.signal(number); }
  void freeze();  // SIGSTOP
  void thaw();    // SIGCONT
  ChildProcess& child() { return child_; }

  std::string log() const;
  bool wait_for_log(std::string_view text, milliseconds deadline = milliseconds(5000)) const;
  // Everything it told its service manager so far, one message per entry ("READY=1\nSTATUS=...").
  std::vector<std::string> notifications();
  bool wait_for_notification(std::string_view text, milliseconds deadline = milliseconds(5000));

 private:
  DaemonProcess(std::unique_ptr<ScratchFolder> scratch, Options options, UniqueFd notify,
                ChildProcess child);

  std::string folder_;
  std::unique_ptr<ScratchFolder> scratch_;  // null when the folder is the caller's
  Options options_;
  UniqueFd notify_;
  std::vector<std::string> notifications_;
  ChildProcess child_;
};

// Polls until `condition` holds or the deadline passes; returns whether it held.
template <typename Condition>
bool eventually(milliseconds deadline, Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    if (condition()) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    ::usleep(5000);
  }
}

}  // namespace arcomm::support
