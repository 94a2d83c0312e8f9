#include "daemon/control/peer_credentials.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

namespace arcomm {
namespace {

constexpr std::size_t kEntryBytes = 65'536;  // room for a group or passwd entry with its strings

std::optional<gid_t> find_group(const std::string& name) {
  std::vector<char> buffer(kEntryBytes);
  group entry{};
  group* found = nullptr;
  if (name.empty() ||
      ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return std::nullopt;
  }
  return found->gr_gid;
}

bool is_member(uid_t uid, gid_t primary, gid_t wanted) {
  if (primary == wanted) return true;
  std::vector<char> buffer(kEntryBytes);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return false;
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  if (::getgrouplist(found->pw_name, found->pw_gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
    if (::getgrouplist(found->pw_name, found->pw_gid, groups.data(), &count) < 0) return false;
  }
  groups.resize(static_cast<std::size_t>(count));
  return std::find(groups.begin(), groups.end(), wanted) != groups.end();
}

}  // namespace

Result<PeerCredentials> read_peer_credentials(int socket_fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return error(ErrorCode::Internal, Reason::None,
                 "cannot read the peer's credentials: ", std::strerror(errno));
  }
  return PeerCredentials{peer.pid, peer.uid, peer.gid};
}

bool may_connect(const PeerCredentials& peer, const std::string& group) {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  const std::optional<gid_t> wanted = find_group(group);
  return wanted && is_member(peer.uid, peer.gid, *wanted);
}

}  // namespace arcomm
