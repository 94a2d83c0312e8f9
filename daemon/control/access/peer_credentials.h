// Which process is at the other end of a unix socket, as the kernel says, and whether it may be
// there. Thread: any, but look_up() may take long, since a group may be known to a directory server
// alone: it is asked at start and at a reload, never for a connection.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "config/settings.h"
#include "daemon/exec/worker/device_worker.h"
#include "proto/status.h"

namespace arcomm {

// The groups whose members may connect. Without a gid (an empty name, or one that is not known)
// there are none.
struct AccessGroups {
  Settings::Access names;
  std::optional<gid_t> members, admins;

  static AccessGroups look_up(const Settings::Access& names);
  friend bool operator==(const AccessGroups&, const AccessGroups&) = default;
};

// SO_PEERCRED: fixed by the kernel when the peer connected; nothing that the peer sends can change
// it.
Result<PeerCredentials> read_peer_credentials(int socket_fd);

// root, where access.trust_root says so, or the daemon's own uid, where that is not root's.
bool is_operator(const PeerCredentials& peer, const Settings::Access& access);

// Operators always may; others when their process had `group` as its own or
// among its supplementary groups when it connected (SO_PEERGROUPS).
bool may_connect(int socket_fd, const PeerCredentials& peer, std::optional<gid_t> group,
                 const Settings::Access& access);

// Those who need no group, for a message.
std::string operators(const Settings::Access& access);

}  // namespace arcomm
