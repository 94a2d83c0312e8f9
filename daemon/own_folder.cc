#include "daemon/own_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "proto/unique_fd.h"

namespace arcomm {
namespace {

Error cannot_own(const char* what, const std::string& path) {
  const int why = errno;
  return error(why == EACCES || why == EPERM ? ErrorCode::PermissionDenied : ErrorCode::Unavailable,
               Reason::None, "cannot ", what, " ", path, ": ", std::strerror(why),
               "; set runtime_dir and state_dir to folders that this user may write");
}

Status make_folder(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0) {
    // Less what the umask took; nobody knows it before.
    if (::chmod(path.c_str(), mode) != 0) return cannot_own("set the mode of", path);
    return {};
  }
  if (errno == EEXIST) return {};
  if (errno != ENOENT) return cannot_own("make", path);
  const std::string above = std::filesystem::path(path).parent_path();
  if (above.empty() || above == path) return cannot_own("make", path);
  ARC_RETURN_IF_ERROR(make_folder(above, 0755));
  if (::mkdir(path.c_str(), mode) != 0 || ::chmod(path.c_str(), mode) != 0)
    return cannot_own("make", path);
  return {};
}

}  // namespace

Status own_folder(const std::string& path, mode_t mode) {
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  ARC_RETURN_IF_ERROR(make_folder(folder, mode));
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return cannot_own("open", folder);
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return error(ErrorCode::PermissionDenied, Reason::None, folder, " belongs to uid ", info.st_uid,
                 ", who could replace what is in it: give it to uid ", ::geteuid(),
                 " (chown), or name another folder");
  }
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  if ((info.st_mode & kOthersWrite) == 0) return {};
  // Also where its mode says that only an owner may remove a file: names that are still free could
  // be taken.
  if (info.st_uid == ::geteuid() && (info.st_mode & S_ISVTX) == 0 &&
      ::fchmod(fd.get(), info.st_mode & 07777 & ~kOthersWrite) == 0) {
    return {};
  }
  return error(ErrorCode::PermissionDenied, Reason::None, "others may write to ", folder,
               ", and could put files into the daemon's places: chmod go-w it, or name a folder "
               "that is the daemon's alone");
}

}  // namespace arcomm
