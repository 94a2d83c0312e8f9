#include "daemon/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>

#include "daemon/own_folder.h"

namespace arcomm {
namespace {

constexpr int kAttempts = 8;  // each but the last met somebody who replaced the file

// "4711", or "unknown" while the holder has not written it yet.
std::string holder_of(int fd) {
  char text[32] = {};
  const ssize_t got = ::pread(fd, text, sizeof(text) - 1, 0);
  std::string pid(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  pid.erase(pid.find_last_not_of(" \n") + 1);
  return pid.empty() ? "unknown" : pid;
}

Error cannot(const char* what, const std::string& path) {
  const int why = errno;
  return error(why == EACCES || why == EPERM ? ErrorCode::PermissionDenied : ErrorCode::Unavailable,
               Reason::None, "cannot ", what, " ", path, ": ", std::strerror(why),
               "; set runtime_dir to a folder this user may write");
}

// Who holds the flock of this file, as the kernel has it; nullopt where it does not say: the holder
// is in another PID namespace.
std::optional<uid_t> locked_by(const struct stat& file) {
  char wanted[64];
  std::snprintf(wanted, sizeof(wanted), "%02x:%02x:%llu", ::major(file.st_dev),
                ::minor(file.st_dev), static_cast<unsigned long long>(file.st_ino));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    char kind[16] = {}, mode[16] = {}, right[16] = {}, inode[64] = {};
    long pid = 0;
    // "1: FLOCK  ADVISORY  WRITE 4711 08:01:12345 0 EOF"; who waits has an arrow behind the number.
    if (std::sscanf(line.c_str(), "%*d: %15s %15s %15s %ld %63s", kind, mode, right, &pid, inode) !=
            5 ||
        std::strcmp(kind, "FLOCK") != 0 || std::strcmp(inode, wanted) != 0) {
      continue;
    }
    struct stat process {};
    if (::stat(("/proc/" + std::to_string(pid)).c_str(), &process) == 0) return process.st_uid;
  }
  return std::nullopt;
}

bool is_ours_alone(const struct stat& file) {
  return S_ISREG(file.st_mode) && file.st_uid == ::geteuid() && (file.st_mode & 077) == 0;
}

bool is_same(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

Result<InstanceLock> InstanceLock::take(const std::string& runtime_dir) {
  ARC_RETURN_IF_ERROR(own_folder(runtime_dir, 0755));
  const std::string path = runtime_dir + "/arcommd.lock";
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    UniqueFd file(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    struct stat opened {};
    if (!file || ::fstat(file.get(), &opened) != 0) return cannot("open", path);
    const bool locked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) return cannot("lock", path);
    struct stat named {};
    if (::lstat(path.c_str(), &named) != 0 || !is_same(opened, named)) continue;  // replaced
    if (!is_ours_alone(opened)) {
      const std::optional<uid_t> holder = locked ? std::nullopt : locked_by(opened);
      const bool by_a_stranger = holder && *holder != ::geteuid() && *holder != 0;
      if (locked || by_a_stranger) {
        // Whoever had it open is left with a file that nobody looks for.
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) return cannot("replace", path);
        continue;
      }
    }
    if (!locked) {
      return error(ErrorCode::AlreadyExists, Reason::None, "arcommd is already running (pid ",
                   holder_of(file.get()), ") in ", runtime_dir);
    }
    const std::string pid = std::to_string(::getpid()) + "\n";
    if (::ftruncate(file.get(), 0) != 0 ||
        ::pwrite(file.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      return cannot("write", path);
    }
    return InstanceLock(std::move(file));
  }
  return error(ErrorCode::Unavailable, Reason::None, path,
               " is replaced again and again by somebody else: who writes to ", runtime_dir, "?");
}

}  // namespace arcomm
