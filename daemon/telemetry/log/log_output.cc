#include "daemon/telemetry/log/log_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace arcomm {
namespace {

constexpr int kPollMs = 20;

bool leads_to_journal(const struct stat& status) {
  const char* stream = std::getenv("JOURNAL_STREAM");  // "device:inode"
  return stream != nullptr &&
         stream == std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

// Unavailable: it may go better later.
ErrorCode code_of(int failure) {
  switch (failure) {
    case EACCES:
    case EPERM:
      return ErrorCode::PermissionDenied;
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::NotFound;
    case EISDIR:
    case ENAMETOOLONG:
      return ErrorCode::InvalidArgument;
  }
  return ErrorCode::Unavailable;
}

}  // namespace

LogOutput::LogOutput(int fd, UniqueFd owned) : fd_(fd), owned_(std::move(owned)) {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) {
    fd_ = -1;  // closed: a number that somebody else will be given must not get our lines
    return;
  }
  is_socket_ = S_ISSOCK(status.st_mode);
  is_journal_ = !owned_ && leads_to_journal(status);
}

Result<std::unique_ptr<LogOutput>> LogOutput::open(const std::string& file) {
  if (file.empty()) return std::unique_ptr<LogOutput>(new LogOutput(STDERR_FILENO, UniqueFd()));
  // Non-blocking: opening a FIFO without a reader fails at once. On a regular file it has no
  // effect.
  UniqueFd fd(::open(file.c_str(),
                     O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640));
  if (!fd) {
    const int failure = errno;
    return error(code_of(failure), Reason::BadConfig, "log.file: cannot open ", file, ": ",
                 std::strerror(failure), "; name a file that the daemon's user may write");
  }
  const int number = fd.get();
  return std::unique_ptr<LogOutput>(new LogOutput(number, std::move(fd)));
}

bool LogOutput::write(std::string_view line, const std::function<bool()>& keep_waiting) {
  if (fd_ < 0) return false;
  std::string continued;
  if (is_mid_line_) {
    continued = "\n" + std::string(line);
    line = continued;
  }
  const std::size_t length = line.size();
  while (!line.empty()) {
    // Standard error belongs to others too, so it stays in blocking mode: ask first. A pipe that is
    // ready takes PIPE_BUF bytes, and a line is no longer than that.
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, kPollMs) <= 0) {
      if (keep_waiting()) continue;
      return false;
    }
    const ssize_t wrote = is_socket_
                              ? ::send(fd_, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                              : ::write(fd_, line.data(), line.size());
    if (wrote >= 0) {
      line.remove_prefix(static_cast<std::size_t>(wrote));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!keep_waiting()) return false;
      ::poll(nullptr, 0, kPollMs);
      continue;
    }
    is_mid_line_ = is_mid_line_ || line.size() != length;
    return false;
  }
  is_mid_line_ = false;
  return true;
}

}  // namespace arcomm
