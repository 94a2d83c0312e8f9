#include "daemon/telemetry/sd_notify.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace arcomm {
namespace {

constexpr std::chrono::seconds kPatience{1};
constexpr int kFirstInherited = 3;    // SD_LISTEN_FDS_START
constexpr int kMostInherited = 8192;  // above FileDescriptorStoreMax= and the sockets

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failure != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

bool is_this_process(std::string_view pid) {
  return number(pid) == static_cast<std::uint64_t>(::getpid());
}

// A notification is lines of NAME=value: a newline inside a value would begin another.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

std::uint64_t monotonic_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

std::string path_of(int fd) {
  sockaddr_un address{};
  socklen_t length = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  const std::size_t named = length - std::min<std::size_t>(length, offsetof(sockaddr_un, sun_path));
  if (address.sun_family != AF_UNIX || named == 0 || address.sun_path[0] == '\0') return "";
  return std::string(address.sun_path, ::strnlen(address.sun_path, named));
}

}  // namespace

ServiceManager ServiceManager::from_environment() {
  ServiceManager manager;
  const std::string_view path = variable("NOTIFY_SOCKET");
  const bool is_usable = path.size() > 1 && path.size() < sizeof(sockaddr_un::sun_path) &&
                         (path.front() == '/' || path.front() == '@');
  if (!is_usable) return manager;
  manager.address_ = path;
  if (path.front() == '@') manager.address_.front() = '\0';
  manager.socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
  ::setsockopt(manager.socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const auto usec = number(variable("WATCHDOG_USEC"));
  const std::string_view pid = variable("WATCHDOG_PID");
  if (usec && *usec > 0 && (pid.empty() || is_this_process(pid)))
    manager.watchdog_ = std::chrono::microseconds(*usec);
  return manager;
}

bool ServiceManager::send(std::string_view message, Delivery delivery) {
  return send_with(message, -1, delivery);
}

bool ServiceManager::send_with(std::string_view message, int fd, Delivery delivery) {
  if (!is_present()) return false;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  iovec text{.iov_base = const_cast<char*>(message.data()), .iov_len = message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_name = &to;
  header.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  header.msg_iov = &text;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  const int waiting =
      delivery == Delivery::AtOnce ? MSG_DONTWAIT : 0;  // else SO_SNDTIMEO bounds it
  return ::sendmsg(socket_.get(), &header, waiting | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message.size());
}

bool ServiceManager::store(int fd, std::string_view name) {
  return send_with("FDSTORE=1\nFDNAME=" + one_line(name), fd, Delivery::AtOnce);
}

bool ServiceManager::unstore(std::string_view name, Delivery delivery) {
  return send("FDSTOREREMOVE=1\nFDNAME=" + one_line(name), delivery);
}

bool ServiceManager::ready(std::string_view text) {
  return send("READY=1\nSTATUS=" + one_line(text), Delivery::Patient);
}

bool ServiceManager::reloading() {
  return send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(monotonic_us()));
}

bool ServiceManager::stopping(std::string_view text) {
  return send("STOPPING=1\nSTATUS=" + one_line(text));
}

bool ServiceManager::status(std::string_view text) {
  return send("STATUS=" + one_line(text));
}

bool ServiceManager::extend_timeout(std::chrono::microseconds by) {
  return send("EXTEND_TIMEOUT_USEC=" + std::to_string(by.count()));
}

bool ServiceManager::ping_watchdog() {
  return send("WATCHDOG=1", Delivery::Patient);
}

Result<std::vector<InheritedSocket>> inherited_sockets() {
  std::vector<InheritedSocket> sockets;
  if (!is_this_process(variable("LISTEN_PID"))) return sockets;
  const auto count = number(variable("LISTEN_FDS"));
  if (!count || *count > kMostInherited) {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, "LISTEN_FDS is \"",
                 variable("LISTEN_FDS"), "\": expected 0 to ", kMostInherited);
  }
  std::string_view names = variable("LISTEN_FDNAMES");
  for (int fd = kFirstInherited; fd < kFirstInherited + static_cast<int>(*count); ++fd) {
    const std::size_t colon = std::min(names.find(':'), names.size());
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags < 0 || ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0) {
      return error(ErrorCode::InvalidArgument, Reason::BadConfig, "LISTEN_FDS promises descriptor ",
                   fd, ", which is not open: ", std::strerror(errno));
    }
    sockets.push_back(
        {.fd = UniqueFd(fd), .name = std::string(names.substr(0, colon)), .path = path_of(fd)});
    names.remove_prefix(std::min(colon + 1, names.size()));
  }
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  return sockets;
}

}  // namespace arcomm
