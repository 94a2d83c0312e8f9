#include "tests/support/processes/daemon_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

namespace arcomm::support {
namespace {

using Clock = std::chrono::steady_clock;

std::string binary(const char* variable, const char* below_build) {
  const char* override_path = std::getenv(variable);
  return override_path != nullptr ? override_path : std::string(ARCOMM_BINARY_DIR) + below_build;
}

UniqueFd listen_for_notifications(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return {};
  std::memcpy(address.sun_path, path.data(), path.size());
  ::unlink(path.c_str());
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return {};
  return fd;
}

// Sanitizers of a child report into its log; without this a race or an overflow in the daemon would
// pass unseen.
bool has_sanitizer_report(const std::string& log) {
  for (const char* mark : {"ERROR: AddressSanitizer", "ERROR: LeakSanitizer",
                           "WARNING: ThreadSanitizer", "runtime error:", "terminate called"}) {
    if (log.find(mark) != std::string::npos) return true;
  }
  return false;
}

std::string tail(const std::string& text, std::size_t bytes) {
  return text.size() <= bytes ? text : text.substr(text.size() - bytes);
}

}  // namespace

std::string daemon_binary() {
  return binary("ARCOMM_TEST_DAEMON", "/daemon/arcommd");
}
std::string arctl_binary() {
  return binary("ARCOMM_TEST_ARCTL", "/client/arctl/arctl");
}
std::string test_client_binary() {
  return binary("ARCOMM_TEST_CLIENT", "/tests/support/arcomm_test_client");
}

std::unique_ptr<DaemonProcess> DaemonProcess::start(Options options) {
  std::unique_ptr<ScratchFolder> scratch;
  std::string folder = options.folder;
  if (folder.empty()) {
    scratch = std::make_unique<ScratchFolder>();
    folder = scratch->path();
  }
  for (const char* name : {"/run", "/state"}) {
    ::mkdir((folder + name).c_str(), 0755);
  }
  UniqueFd notify = listen_for_notifications(folder + "/notify.sock");
  if (!notify) {
    ADD_FAILURE() << "cannot bind " << folder << "/notify.sock: " << std::strerror(errno);
    return nullptr;
  }
  ChildOptions child;
  child.command = {daemon_binary()};
  if (!options.config_text.empty()) {
    write_text(folder + "/arcommd.toml", options.config_text);
    child.command.insert(child.command.end(), {"--config", folder + "/arcommd.toml"});
  }
  std::map<std::string, std::string> settings = options.settings;
  settings.try_emplace("metrics.listen", options.metrics ? "unix:" + folder + "/metrics.sock" : "");
  settings.try_emplace("device.backend", "host");
  for (const auto& [name, value] : settings) {
    std::string setting = name;
    setting.append("=").append(value);
    child.command.insert(child.command.end(), {"--set", std::move(setting)});
  }
  child.command.insert(child.command.end(), options.arguments.begin(), options.arguments.end());
  child.environment = options.environment;
  child.environment.insert(child.environment.end(), {"ARCOMM_RUNTIME_DIR=" + folder + "/run",
                                                     "ARCOMM_STATE_DIR=" + folder + "/state",
                                                     "NOTIFY_SOCKET=" + folder + "/notify.sock"});
  child.log_path = folder + "/log";
  child.stderr_fd = options.stderr_fd;
  child.limits = options.limits;
  std::optional<ChildProcess> process = ChildProcess::start(std::move(child));
  if (!process) return nullptr;
  const milliseconds deadline = options.start_deadline;
  const bool expect_ready = options.expect_ready;
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess(std::move(scratch), std::move(options),
                                                          std::move(notify), std::move(*process)));
  daemon->folder_ = folder;
  if (expect_ready && !daemon->wait_ready(deadline)) {
    ADD_FAILURE() << "arcommd was not ready within " << deadline.count() << " ms; its log:\n"
                  << tail(daemon->log(), 4000);
    return nullptr;
  }
  return daemon;
}

DaemonProcess::DaemonProcess(std::unique_ptr<ScratchFolder> scratch, Options options,
                             UniqueFd notify, ChildProcess child)
    : scratch_(std::move(scratch)),
      options_(std::move(options)),
      notify_(std::move(notify)),
      child_(std::move(child)) {}

DaemonProcess::~DaemonProcess() {
  child_.signal(SIGCONT);
  child_.kill();
  const std::string text = log();
  if (has_sanitizer_report(text))
    ADD_FAILURE() << "the daemon's log holds a defect report:\n" << tail(text, 8000);
  if (::testing::Test::HasFailure())
    std::cerr << "---- the daemon's last lines\n" << tail(text, 3000) << "----\n";
}

std::vector<std::string> DaemonProcess::environment() const {
  return {"ARCOMM_RUNTIME_DIR=" + runtime_dir(), "ARCOMM_STATE_DIR=" + state_dir()};
}

bool DaemonProcess::wait_ready(milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  for (;;) {
    for (const std::string& message : notifications()) {
      if (message.find("READY=1") != std::string::npos) return true;
    }
    if (Clock::now() >= end || !running()) return false;
    pollfd waiting{notify_.get(), POLLIN, 0};
    ::poll(&waiting, 1, 20);
  }
}

void DaemonProcess::stop(milliseconds deadline) {
  child_.signal(SIGCONT);
  child_.signal(SIGTERM);
  const std::optional<Exit> exit = child_.wait(deadline);
  if (!exit) {
    ADD_FAILURE() << "arcommd still runs " << deadline.count() << " ms after SIGTERM";
    child_.kill();
    return;
  }
  EXPECT_EQ(exit->signal, 0) << "arcommd was ended by a signal";
  EXPECT_EQ(exit->code, 0) << "arcommd did not end cleanly";
  for (const std::string& path : {client_socket(), admin_socket(), fd_socket(), metrics_socket()}) {
    EXPECT_FALSE(std::filesystem::exists(path)) << path << " was left behind";
  }
}

void DaemonProcess::freeze() {
  child_.signal(SIGSTOP);
  siginfo_t stopped{};  // the signal takes a moment, in which it would still answer
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid()), &stopped, WSTOPPED | WNOWAIT), 0);
}
void DaemonProcess::thaw() {
  child_.signal(SIGCONT);
}

std::string DaemonProcess::log() const {
  return read_text(folder_ + "/log");
}

bool DaemonProcess::wait_for_log(std::string_view text, milliseconds deadline) const {
  return eventually(deadline, [&] { return log().find(text) != std::string::npos; });
}

std::vector<std::string> DaemonProcess::notifications() {
  char message[4096];
  for (ssize_t got = 0; (got = ::recv(notify_.get(), message, sizeof(message), 0)) >= 0;) {
    notifications_.emplace_back(message, static_cast<std::size_t>(got));
  }
  return notifications_;
}

bool DaemonProcess::wait_for_notification(std::string_view text, milliseconds deadline) {
  return eventually(deadline, [&] {
    for (const std::string& message : notifications()) {
      if (message.find(text) != std::string::npos) return true;
    }
    return false;
  });
}

}  // namespace arcomm::support
