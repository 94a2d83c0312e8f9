#include "daemon/plan/tuning/tuning_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "proto/unique_fd.h"

namespace arcomm {
namespace {

Error cannot(const char* what, const std::string& path) {
  const int number = errno;
  const ErrorCode code = number == ENOENT                      ? ErrorCode::NotFound
                         : number == EACCES || number == EPERM ? ErrorCode::PermissionDenied
                                                               : ErrorCode::Unavailable;
  return error(code, Reason::BadConfig, "cannot ", what, " the tuning table ", path, ": ",
               std::strerror(number));
}

}  // namespace

Result<std::string> read_tuning_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) return cannot("read", path);
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return cannot("read", path);
  return text.str();
}

Status write_tuning_file(std::string_view text, const std::string& path) {
  const std::string beside = path + ".new";
  {
    UniqueFd file(
        ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file) return cannot("write", beside);
    for (std::size_t written = 0; written < text.size();) {
      const ssize_t n = ::write(file.get(), text.data() + written, text.size() - written);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return cannot("write", beside);
      written += static_cast<std::size_t>(n);
    }
    if (::fsync(file.get()) != 0) return cannot("write", beside);
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) return cannot("rename", path);
  return {};
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace arcomm
