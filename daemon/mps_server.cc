#include "daemon/mps_server.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "daemon/telemetry/log/log.h"
#include "proto/unique_fd.h"

extern char** environ;

namespace arcomm {
namespace {

using std::chrono::milliseconds;

constexpr const char* kProgram = "nvidia-cuda-mps-control";
constexpr milliseconds kStartLimit{10'000}, kAskLimit{2'000};

std::string log_folder(const std::string& runtime_dir) {
  return runtime_dir + "/mps/log";
}

// There while the control daemon that serves the folders was started with -multiuser-server, for
// the daemon that takes it over: it cannot be asked.
std::string mark_of_all_users(const std::string& runtime_dir) {
  return runtime_dir + "/mps/multiuser-server";
}

// A file with the words that the program reads as commands.
Result<UniqueFd> commands(std::string_view words) {
  UniqueFd file(::memfd_create("mps-commands", MFD_CLOEXEC));
  if (!file || ::write(file.get(), words.data(), words.size()) < 0 ||
      ::lseek(file.get(), 0, SEEK_SET) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot make a memfd: ", std::strerror(errno));
  }
  return file;
}

enum class Run : std::uint8_t { Commands, Daemon, DaemonForAllUsers };

// Runs it and waits; at the limit it is killed. Its exit status. Commands: it reads `words`.
Result<int> run(Run how, std::string_view words, milliseconds limit) {
  Result<UniqueFd> input = commands(words);
  if (!input) return std::move(input).error();
  char program[] = "nvidia-cuda-mps-control", daemon[] = "-d", shared[] = "-multiuser-server";
  char* arguments[] = {program, how == Run::Commands ? nullptr : daemon,
                       how == Run::DaemonForAllUsers ? shared : nullptr, nullptr};
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, input->get(), STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;  // our signals are blocked, and a child would inherit that
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, kProgram, &files, &attributes, arguments, environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    return error(ErrorCode::NotFound, Reason::Unsupported, "cannot run ", kProgram, ": ",
                 std::strerror(failed), "; install it with the NVIDIA driver, or set gpu.mps");
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) {
      return error(ErrorCode::Internal, Reason::None, "waitpid: ", std::strerror(errno));
    }
    if (std::chrono::steady_clock::now() >= end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, kProgram, " did not end within ",
                   limit.count(), " ms");
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string MpsServer::pipe_folder(const std::string& runtime_dir) {
  return runtime_dir + "/mps/pipe";
}

void MpsServer::name_folders(const std::string& runtime_dir) {
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_folder(runtime_dir).c_str(), 1);
  ::setenv("CUDA_MPS_LOG_DIRECTORY", log_folder(runtime_dir).c_str(), 1);
}

Result<std::unique_ptr<MpsServer>> MpsServer::start(const std::string& runtime_dir, bool as_root) {
  for (const std::string& folder :
       {runtime_dir + "/mps", pipe_folder(runtime_dir), log_folder(runtime_dir)}) {
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (!failure) {  // clients of other users go through them
      std::filesystem::permissions(folder, std::filesystem::perms(0755), failure);
    }
    if (failure) {
      return error(ErrorCode::PermissionDenied, Reason::None, "cannot make the folder ", folder,
                   " for MPS: ", failure.message());
    }
  }
  const std::string mark = mark_of_all_users(runtime_dir);
  const auto start_for_one = [&mark] {
    std::error_code none_there;
    std::filesystem::remove(mark, none_there);
    return run(Run::Daemon, {}, kStartLimit);
  };
  bool for_all = as_root;
  Result<int> started = for_all ? run(Run::DaemonForAllUsers, {}, kStartLimit) : start_for_one();
  if (started && *started == 0 && for_all && !std::ofstream(mark))
    log::warn("cannot write {}: a daemon that takes over this MPS server will serve uid 0 alone",
              mark);
  if (started && *started != 0) {
    // It refuses where one serves these folders already.
    const Result<int> answered = run(Run::Commands, "get_server_list\n", kAskLimit);
    if (answered && *answered == 0) {
      std::error_code failure;
      for_all = for_all && std::filesystem::exists(mark, failure);
      log::info("an MPS control daemon serves {} already, {}", pipe_folder(runtime_dir),
                for_all ? "with -multiuser-server" : "for one user");
      started = 0;
    } else if (for_all) {  // or the option is unknown to it
      for_all = false;
      started = start_for_one();
    }
  }
  if (!started) return started.error();
  if (*started != 0) {
    return error(ErrorCode::Unavailable, Reason::Unsupported, kProgram, " -d ended with status ",
                 *started, ": see ", log_folder(runtime_dir), "/control.log");
  }
  return std::unique_ptr<MpsServer>(new MpsServer(for_all));
}

MpsServer::~MpsServer() {
  const Result<int> told = run(Run::Commands, "quit\n", kAskLimit);
  if (!told && told.error().code != ErrorCode::DeadlineExceeded)
    log::warn("MPS was not told to quit: {}", told.error().message);
}

}  // namespace arcomm
