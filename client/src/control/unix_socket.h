// Sockets to the daemon: connecting, and waiting on one, with a deadline. Thread: any. The sockets
// never block by themselves.
#pragma once

#include <string>

#include "client/src/session/deadline.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

// `type` is SOCK_STREAM or SOCK_SEQPACKET. Errors: NotRunning where nobody listens, Permission
// where this user may not connect, Timeout where the daemon does not accept.
Result<UniqueFd> connect_unix(const std::string& path, int type, Deadline deadline);

// Waits for `events` of poll(2), a hang-up or a signal: look again. False once the deadline passed.
bool wait_for_socket(int socket, short events, Deadline deadline);

}  // namespace arcomm::client
