#include "daemon/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace arcomm {
namespace {

// "4711", or "unknown" while the holder has not written it yet.
std::string holder_of(int fd) {
  char text[32] = {};
  const ssize_t got = ::pread(fd, text, sizeof(text) - 1, 0);
  std::string pid(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  pid.erase(pid.find_last_not_of(" \n") + 1);
  return pid.empty() ? "unknown" : pid;
}

}  // namespace

Result<InstanceLock> InstanceLock::take(const std::string& runtime_dir) {
  std::error_code failure;
  std::filesystem::create_directories(runtime_dir, failure);
  const std::string path = runtime_dir + "/arcommd.lock";
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) {
    const int why = errno;
    return error(
        why == EACCES || why == EPERM ? ErrorCode::PermissionDenied : ErrorCode::Unavailable,
        Reason::None, "cannot open ", path, ": ", std::strerror(why),
        "; set runtime_dir to a folder this user may write");
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return error(ErrorCode::Unavailable, Reason::None, "cannot lock ", path, ": ",
                   std::strerror(errno));
    }
    return error(ErrorCode::AlreadyExists, Reason::None, "arcommd is already running (pid ",
                 holder_of(file.get()), ") in ", runtime_dir);
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file.get(), 0) != 0 ||
      ::pwrite(file.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return error(ErrorCode::Unavailable, Reason::None, "cannot write ", path, ": ",
                 std::strerror(errno));
  }
  return InstanceLock(std::move(file));
}

}  // namespace arcomm
