#include "daemon/control/access/peer_credentials.h"

#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

constexpr std::size_t kEntryBytes = 65'536;  // room for a group with its members' names, at first
constexpr std::size_t kMostEntryBytes = std::size_t{64} << 20;

std::optional<gid_t> find_group(const std::string& name, const Settings::Access& access) {
  if (name.empty()) return std::nullopt;
  std::vector<char> buffer(kEntryBytes);
  group entry{};
  group* found = nullptr;
  int failure = 0;
  while ((failure = ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found)) ==
             ERANGE &&
         buffer.size() < kMostEntryBytes) {
    buffer.resize(2 * buffer.size());
  }
  if (failure == 0 && found != nullptr) return found->gr_gid;
  log::warn(
      "group \"{}\": {}: until a reload finds it, only {} may use what is meant for its members",
      name, failure == 0 ? "there is no such group" : std::strerror(failure), operators(access));
  return std::nullopt;
}

std::vector<gid_t> read_peer_groups(int socket_fd) {
  std::vector<gid_t> groups(64);
  while (true) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const int failed = ::getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes);
    const std::size_t count = bytes / sizeof(gid_t);
    if (failed != 0 && (errno != ERANGE || count <= groups.size())) return {};
    groups.resize(count);
    if (failed == 0) return groups;
  }
}

}  // namespace

AccessGroups AccessGroups::look_up(const Settings::Access& names) {
  return {.names = names,
          .members = find_group(names.group, names),
          .admins = find_group(names.admin_group, names)};
}

Result<PeerCredentials> read_peer_credentials(int socket_fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return error(ErrorCode::Internal, Reason::None,
                 "cannot read the peer's credentials: ", std::strerror(errno));
  }
  return PeerCredentials{peer.pid, peer.uid, peer.gid};
}

bool is_operator(const PeerCredentials& peer, const Settings::Access& access) {
  return peer.uid == 0 ? access.trust_root : peer.uid == ::geteuid();
}

std::string operators(const Settings::Access& access) {
  const std::string own = ::geteuid() == 0 ? "" : "uid " + std::to_string(::geteuid());
  if (!access.trust_root) return own.empty() ? "nobody" : own;
  return own.empty() ? "root" : "root and " + own;
}

bool may_connect(int socket_fd, const PeerCredentials& peer, std::optional<gid_t> group,
                 const Settings::Access& access) {
  if (is_operator(peer, access)) return true;
  if (!group) return false;
  if (peer.gid == *group) return true;
  const std::vector<gid_t> groups = read_peer_groups(socket_fd);
  return std::find(groups.begin(), groups.end(), *group) != groups.end();
}

}  // namespace arcomm
