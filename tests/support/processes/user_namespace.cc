#include "tests/support/processes/user_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace arcomm::support {
namespace {

// After fork: system calls alone. Says the errno of what failed, 0 for nothing, and stays.
[[noreturn]] void keep(const UserNamespace::Options& options, int told) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int failed = 0;
  if (::syscall(SYS_setgroups, 1, &options.group) != 0 ||
      ::syscall(SYS_setresgid, options.group, options.group, options.group) != 0 ||
      ::syscall(SYS_setresuid, options.person, options.person, options.person) != 0 ||
      ::unshare(CLONE_NEWUSER) != 0) {
    failed = errno;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // cleared by the change of credentials
  (void)!::write(told, &failed, sizeof(failed));
  for (;;) ::pause();
}

Error not_to_be_had(const char* step, int why) {
  return error(ErrorCode::PermissionDenied, Reason::Permission,
               "this machine gives no user namespace: ", step, ": ", std::strerror(why));
}

// In one write, as the kernel wants it; 0 or why not.
int write_whole(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return errno;
  return ::write(file.get(), text.data(), text.size()) < 0 ? errno : 0;
}

}  // namespace

Result<UserNamespace> UserNamespace::make(const Options& options) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return not_to_be_had("pipe", errno);
  const UniqueFd told(ends[0]);
  UniqueFd teller(ends[1]);
  const pid_t keeper = ::fork();
  if (keeper == 0) keep(options, teller.get());
  if (keeper < 0) return not_to_be_had("fork", errno);
  UserNamespace made(options, keeper);
  teller.reset();
  int failed = EPIPE;
  (void)!::read(told.get(), &failed, sizeof(failed));
  if (failed != 0) return not_to_be_had("unshare(CLONE_NEWUSER)", failed);
  const std::string process = "/proc/" + std::to_string(keeper);
  const std::string range =
      "0 " + std::to_string(options.first) + " " + std::to_string(options.count);
  for (const char* map : {"/uid_map", "/gid_map"}) {
    if (const int why = write_whole(process + map, range); why != 0) return not_to_be_had(map, why);
  }
  made.fd_.reset(::open((process + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
  if (!made.fd_) return not_to_be_had("ns/user", errno);
  return made;
}

UserNamespace::UserNamespace(UserNamespace&& other) noexcept
    : options_(other.options_),
      keeper_(std::exchange(other.keeper_, -1)),
      fd_(std::move(other.fd_)) {}

UserNamespace::~UserNamespace() {
  if (keeper_ <= 0) return;
  ::kill(keeper_, SIGKILL);
  ::waitpid(keeper_, nullptr, 0);
}

}  // namespace arcomm::support
