#include "daemon/control/access/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/sd_notify.h"

namespace arcomm {
namespace {

constexpr int kBacklog = 1024;
constexpr SocketKind kKinds[] = {SocketKind::Client, SocketKind::Admin, SocketKind::Descriptor};

bool is_socket(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

int type_of(SocketKind kind) {
  return kind == SocketKind::Descriptor ? SOCK_SEQPACKET : SOCK_STREAM;
}

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(mode));
  return text;
}

// 0660 and the group, or 0600 and why.
void give_to_group(SocketKind kind, const std::string& path, const AccessGroups& groups,
                   std::vector<std::string>& warnings) {
  const bool is_for_admins = kind == SocketKind::Admin;
  const std::string& group = is_for_admins ? groups.names.admin_group : groups.names.group;
  const std::optional<gid_t> gid = is_for_admins ? groups.admins : groups.members;
  const char* why = nullptr;
  if (group.empty()) {
    why = "no group is set";
  } else if (!gid) {
    why = "there is no such group";
  } else if (::chown(path.c_str(), static_cast<uid_t>(-1), *gid) != 0 ||
             ::chmod(path.c_str(), 0660) != 0) {
    why = std::strerror(errno);
  }
  if (why != nullptr) {
    ::chmod(path.c_str(), 0600);
    warnings.push_back(path + " is for " + operators(groups.names) + " only: group \"" + group +
                       "\": " + why);
  }
}

// A path that systemd passed: made by a unit, which may say anything.
void look_at_passed(const std::string& path, std::vector<std::string>& warnings) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  if ((info.st_mode & S_IWOTH) != 0) {
    warnings.push_back(
        path + " is open to everybody (mode " + octal(info.st_mode & 07777) +
        "): set SocketMode=0660 in its unit; strangers are turned away all the same");
  }
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    warnings.push_back(path + " belongs to uid " + std::to_string(info.st_uid) +
                       ", who can replace it: set SocketUser= in its unit");
  }
}

Error cannot(const std::string& what, const std::string& path) {
  const int why = errno;
  const ErrorCode code =
      why == EACCES || why == EPERM ? ErrorCode::PermissionDenied : ErrorCode::Unavailable;
  return error(code, Reason::None, "cannot ", what, " ", path, ": ", std::strerror(why));
}

}  // namespace

std::string_view file_name_of(SocketKind kind) {
  switch (kind) {
    case SocketKind::Client:
      return "client.sock";
    case SocketKind::Admin:
      return "admin.sock";
    case SocketKind::Descriptor:
      return "fd.sock";
  }
  return "";
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : kind_(other.kind_),
      fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      made_here_(std::exchange(other.made_here_, false)) {}

ListeningSocket::~ListeningSocket() {
  if (made_here_) ::unlink(path_.c_str());
}

UniqueFd ListeningSocket::retire() {
  if (std::exchange(made_here_, false)) {
    ::unlink(path_.c_str());
    ::shutdown(fd_.get(), SHUT_RDWR);
  }
  return std::move(fd_);
}

void ListeningSocket::use_groups(const AccessGroups& groups,
                                 std::vector<std::string>& warnings) const {
  if (made_here_) give_to_group(kind_, path_, groups, warnings);
}

Result<ListeningSocket> make_socket(SocketKind kind, const std::string& runtime_dir,
                                    const AccessGroups& groups,
                                    std::vector<std::string>& warnings) {
  const std::string path = runtime_dir + "/" + std::string(file_name_of(kind));
  const std::string unfinished = path + ".new";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (unfinished.size() >= sizeof(address.sun_path)) {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig,
                 "runtime_dir is too long for a unix socket: ", path, " has ", path.size(),
                 " characters and ", sizeof(address.sun_path) - 5, " is the most");
  }
  std::memcpy(address.sun_path, unfinished.c_str(), unfinished.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, type_of(kind) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return cannot("make a socket for", path);
  ::unlink(unfinished.c_str());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return cannot("bind", unfinished);
  }
  ListeningSocket socket(kind, std::move(fd), unfinished, true);
  // Nobody can connect before listen(), and nobody looks under this name: the mode is right before
  // it is seen.
  if (::chmod(unfinished.c_str(), 0600) != 0) return cannot("set the mode of", unfinished);
  std::vector<std::string> group_warnings;
  give_to_group(kind, unfinished, groups, group_warnings);
  for (std::string& warning : group_warnings)
    warnings.push_back(path + warning.substr(unfinished.size()));
  if (::listen(socket.fd(), kBacklog) != 0) return cannot("listen on", unfinished);
  if (::rename(unfinished.c_str(), path.c_str()) != 0) return cannot("put in place", path);
  socket.rename_to(path);
  return socket;
}

Result<std::vector<ListeningSocket>> take_passed_sockets(std::vector<InheritedSocket> passed) {
  std::vector<ListeningSocket> sockets;
  for (InheritedSocket& one : passed) {
    if (!is_socket(one.fd.get())) {
      log::warn(
          "systemd passed \"{}\", which is no socket: dropped; a daemon of another version "
          "may have stored it",
          one.name);
      continue;
    }
    const std::string name = one.path.substr(one.path.rfind('/') + 1);
    int type = 0;
    socklen_t length = sizeof(type);
    ::getsockopt(one.fd.get(), SOL_SOCKET, SO_TYPE, &type, &length);
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](SocketKind known) { return file_name_of(known) == name; });
    if (kind == std::end(kKinds) || type_of(*kind) != type) {
      return error(ErrorCode::InvalidArgument, Reason::BadConfig, "systemd passed \"", one.path,
                   "\", which is none of client.sock, admin.sock (streams) and fd.sock "
                   "(SequentialPacket): correct ",
                   "arcommd.socket");
    }
    ::fcntl(one.fd.get(), F_SETFL, ::fcntl(one.fd.get(), F_GETFL) | O_NONBLOCK);
    sockets.emplace_back(*kind, std::move(one.fd), one.path, false);
  }
  return sockets;
}

Result<std::vector<ListeningSocket>> open_sockets(const Settings& settings,
                                                  const AccessGroups& groups,
                                                  std::vector<InheritedSocket> passed,
                                                  std::vector<std::string>& warnings) {
  Result<std::vector<ListeningSocket>> sockets = take_passed_sockets(std::move(passed));
  if (!sockets) return sockets;
  for (const ListeningSocket& one : *sockets) look_at_passed(one.path(), warnings);
  for (const SocketKind kind : kKinds) {
    if (std::any_of(sockets->begin(), sockets->end(),
                    [&](const auto& one) { return one.kind() == kind; }))
      continue;
    Result<ListeningSocket> made = make_socket(kind, settings.runtime_dir, groups, warnings);
    if (!made) return std::move(made).error();
    sockets->push_back(std::move(made).value());
  }
  return sockets;
}

}  // namespace arcomm
