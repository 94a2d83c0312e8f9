// One child process that a test started: its pipes, its end. Whatever happens, it is gone when the
// object is. Thread: one at a time. Every wait has a deadline.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/unique_fd.h"

namespace arcomm::support {

using std::chrono::milliseconds;

// How a process ended: `signal` is 0 for a normal exit.
struct Exit {
  int code = 0;
  int signal = 0;
  bool clean() const { return code == 0 && signal == 0; }
};

struct ChildOptions {
  std::vector<std::string> command;      // path and arguments
  std::vector<std::string> environment;  // "NAME=value", on top of this process's own
  std::string log_path;                  // stdout and stderr go here; "" inherits
  bool pipe_input = false;               // the test writes to it through input()
  bool pipe_output = false;              // the test reads its stdout through output()
  int stderr_fd = -1;                    // stderr goes here instead; stays the caller's
  int terminal_fd = -1;  // a terminal for all three, and to be interrupted from; stays the caller's
  uid_t uid = 0;         // another user, when this process is root and uid is not 0
  gid_t gid = 0;
  // An open /proc/PID/ns/user to enter first: uid and gid, 0 too, are then those inside of it.
  // Stays the caller's.
  int user_namespace_fd = -1;
  std::vector<gid_t> groups;  // supplementary ones, as this process knows them; {}: left alone
  std::vector<std::pair<int, std::uint64_t>> limits;  // RLIMIT_*, both soft and hard
};

class ChildProcess {
 public:
  // nullopt, and a failed assertion that says why, when it could not be started.
  static std::optional<ChildProcess> start(ChildOptions options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // SIGKILL and reap

  pid_t pid() const { return pid_; }
  bool running();
  void signal(int number) const;
  // nullopt when it is still running at the deadline.
  std::optional<Exit> wait(milliseconds deadline);
  // SIGKILL, and reaped on return.
  void kill();

  int input() const { return input_.get(); }
  int output() const { return output_.get(); }
  void close_input() { input_.reset(); }

  std::uint64_t resident_bytes() const;
  std::size_t open_descriptors() const;
  double cpu_seconds() const;
  std::size_t threads() const;

 private:
  ChildProcess() = default;

  pid_t pid_ = -1;
  std::optional<Exit> exit_;
  UniqueFd input_, output_;
};

// Runs to its end and returns what it wrote. `exit` is empty when it had to be killed at the
// deadline.
struct Ran {
  std::optional<Exit> exit;
  std::string output;  // stdout
  std::string errors;  // stderr
};
Ran run_to_end(std::vector<std::string> command, std::vector<std::string> environment,
               milliseconds deadline, uid_t uid = 0, gid_t gid = 0);

}  // namespace arcomm::support
