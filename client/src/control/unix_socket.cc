#include "client/src/control/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace arcomm::client {
namespace {

Error not_connected(const std::string& path, int why) {
  if (why == EACCES || why == EPERM) {
    return error(ErrorCode::PermissionDenied, Reason::Permission, "may not connect to ", path,
                 ": ask to be added to the socket's group");
  }
  return error(ErrorCode::Unavailable, Reason::NotRunning, "no daemon answers at ", path, ": ",
               std::strerror(why), "; start arcommd, or set ARCOMM_RUNTIME_DIR to its folder");
}

}  // namespace

Result<UniqueFd> connect_unix(const std::string& path, int type, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the socket path ", path, " has ",
                 path.size(), " bytes; unix sockets allow ", sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot make a socket: ", std::strerror(errno));
  }
  // EAGAIN: the daemon's backlog is full; there is nothing to poll for, so look again shortly.
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EISCONN) break;
    if (errno != EAGAIN && errno != EINTR) return not_connected(path, errno);
    if (deadline.passed()) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the daemon at ", path,
                   " does not accept connections");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fd;
}

bool wait_for_socket(int socket, short events, Deadline deadline) {
  pollfd waits{socket, events, 0};
  return ::poll(&waits, 1, deadline.left_ms()) > 0 || !deadline.passed();
}

}  // namespace arcomm::client
