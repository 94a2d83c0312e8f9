#include "tests/support/processes/child_process.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/scratch_folder.h"

extern char** environ;

namespace arcomm::support {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> merged_environment(const std::vector<std::string>& extra) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& other : extra) replaced = replaced || other.starts_with(name);
    if (!replaced) merged.emplace_back(text);
  }
  merged.insert(merged.end(), extra.begin(), extra.end());
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

struct Pipe {
  UniqueFd read_end, write_end;
};

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Between fork and exec only async-signal-safe calls are allowed: everything was prepared before.
struct Prepared {
  std::vector<char*> arguments, environment;
  int in = -1, out = -1, err = -1, terminal = -1;
  uid_t uid = 0;
  gid_t gid = 0;
  int user_namespace = -1;
  const std::vector<gid_t>* groups = nullptr;
  const std::vector<std::pair<int, std::uint64_t>>* limits = nullptr;
  pid_t parent = 0;
};

[[noreturn]] void become(const Prepared& plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test program that dies leaves no daemon behind
  if (::getppid() != plan.parent) ::_exit(127);
  if (plan.terminal >= 0) {
    ::setsid();
    if (::ioctl(plan.terminal, TIOCSCTTY, 0) != 0) ::_exit(126);
  }
  if (plan.in >= 0) ::dup2(plan.in, 0);
  if (plan.out >= 0) ::dup2(plan.out, 1);
  if (plan.err >= 0) ::dup2(plan.err, 2);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  for (const auto& [resource, value] : *plan.limits) {
    const rlimit limit{value, value};
    if (::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) ::_exit(126);
  }
  if (!plan.groups->empty() && ::setgroups(plan.groups->size(), plan.groups->data()) != 0)
    ::_exit(126);
  if (plan.user_namespace >= 0 && ::setns(plan.user_namespace, CLONE_NEWUSER) != 0) ::_exit(126);
  if (plan.uid != 0 || plan.user_namespace >= 0) {
    if (::setgid(plan.gid) != 0 || ::setuid(plan.uid) != 0) ::_exit(126);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // cleared by the change of credentials
  }
  ::execve(plan.arguments[0], plan.arguments.data(), plan.environment.data());
  ::_exit(127);
}

std::string drain_file(int fd) {
  std::string text;
  char chunk[4096];
  for (ssize_t got = 0; (got = ::read(fd, chunk, sizeof(chunk))) > 0;)
    text.append(chunk, static_cast<std::size_t>(got));
  return text;
}

}  // namespace

std::optional<ChildProcess> ChildProcess::start(ChildOptions options) {
  ChildProcess child;
  Pipe in, out;
  UniqueFd log, null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  Prepared plan;
  if (options.pipe_input) in = make_pipe();
  if (options.pipe_output) out = make_pipe();
  if (!options.log_path.empty()) {
    log.reset(::open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log) {
      ADD_FAILURE() << "cannot open " << options.log_path << ": " << std::strerror(errno);
      return std::nullopt;
    }
  }
  plan.in = options.pipe_input ? in.read_end.get() : null.get();
  plan.err = options.stderr_fd >= 0 ? options.stderr_fd : log.get();
  plan.out = options.pipe_output ? out.write_end.get() : log ? log.get() : plan.err;
  if (options.terminal_fd >= 0) plan.in = plan.out = plan.err = plan.terminal = options.terminal_fd;
  plan.arguments = pointers(options.command);
  std::vector<std::string> environment = merged_environment(options.environment);
  plan.environment = pointers(environment);
  plan.uid = options.uid;
  plan.gid = options.gid;
  plan.user_namespace = options.user_namespace_fd;
  plan.groups = &options.groups;
  plan.limits = &options.limits;
  plan.parent = ::getpid();
  if (::access(options.command[0].c_str(), X_OK) != 0) {
    ADD_FAILURE() << "cannot run " << options.command[0] << ": " << std::strerror(errno);
    return std::nullopt;
  }
  child.pid_ = ::fork();
  if (child.pid_ == 0) become(plan);
  if (child.pid_ < 0) {
    ADD_FAILURE() << "cannot fork: " << std::strerror(errno);
    return std::nullopt;
  }
  child.input_ = std::move(in.write_end);
  child.output_ = std::move(out.read_end);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      exit_(other.exit_),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    kill();
    pid_ = std::exchange(other.pid_, -1);
    exit_ = other.exit_;
    input_ = std::move(other.input_);
    output_ = std::move(other.output_);
  }
  return *this;
}

ChildProcess::~ChildProcess() {
  kill();
}

std::optional<Exit> ChildProcess::wait(milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  while (!exit_) {
    int status = 0;
    const pid_t got = ::waitpid(pid_, &status, WNOHANG);
    if (got == pid_) {
      exit_ = WIFSIGNALED(status) ? Exit{0, WTERMSIG(status)} : Exit{WEXITSTATUS(status), 0};
      break;
    }
    if (got < 0) {
      exit_ = Exit{-1, 0};
      break;
    }
    if (Clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return exit_;
}

bool ChildProcess::running() {
  return !wait(milliseconds(0)).has_value();
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0 && !exit_) ::kill(pid_, number);
}

void ChildProcess::kill() {
  if (pid_ <= 0 || exit_) return;
  ::kill(pid_, SIGKILL);
  wait(milliseconds(10000));
}

std::uint64_t ChildProcess::resident_bytes() const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/statm");
  std::uint64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t ChildProcess::open_descriptors() const {
  std::error_code failed;
  std::size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd", failed)) {
    (void)entry;
    ++count;
  }
  return count;
}

double ChildProcess::cpu_seconds() const {
  const std::string stat = read_text("/proc/" + std::to_string(pid_) + "/stat");
  const std::size_t after_name = stat.rfind(')');
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(stat.substr(after_name + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::size_t ChildProcess::threads() const {
  std::error_code failed;
  std::size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task", failed)) {
    (void)entry;
    ++count;
  }
  return count;
}

Ran run_to_end(std::vector<std::string> command, std::vector<std::string> environment,
               milliseconds deadline, uid_t uid, gid_t gid) {
  Ran ran;
  // Files rather than pipes: a child that writes much never waits for the test to read.
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  if (out == nullptr || err == nullptr) {
    ADD_FAILURE() << "cannot create a temporary file: " << std::strerror(errno);
    return ran;
  }
  std::string out_path = "/proc/self/fd/" + std::to_string(::fileno(out));
  ChildOptions options;
  options.command = std::move(command);
  options.environment = std::move(environment);
  options.uid = uid;
  options.gid = gid;
  options.log_path = out_path;
  options.stderr_fd = ::fileno(err);
  std::optional<ChildProcess> child = ChildProcess::start(std::move(options));
  if (child) {
    ran.exit = child->wait(deadline);
    child->kill();
  }
  std::rewind(out);
  std::rewind(err);
  ran.output = drain_file(::fileno(out));
  ran.errors = drain_file(::fileno(err));
  std::fclose(out);
  std::fclose(err);
  return ran;
}

}  // namespace arcomm::support
