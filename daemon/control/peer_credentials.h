// Who is at the other end of a unix socket, as the kernel says, and whether that uid may be there.
// Thread: values and pure look-ups; any thread.
#pragma once

#include <string>

#include "daemon/exec/device_worker.h"
#include "proto/status.h"

namespace arcomm {

// SO_PEERCRED: fixed by the kernel when the peer connected; nothing that the peer sends can change
// it.
Result<PeerCredentials> read_peer_credentials(int socket_fd);

// root and the daemon's own uid always may; others when they are in `group`, primarily or as a
// member. An unknown or empty group admits nobody else.
bool may_connect(const PeerCredentials& peer, const std::string& group);

}  // namespace arcomm
