// A listening stream socket for an address as a setting writes it.
// Thread: any.
#pragma once

#include <string>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

struct ListenSocket {
  UniqueFd fd;              // non-blocking, close-on-exec
  std::string address;      // with the true port
  std::string unlink_path;  // of a unix socket: to be removed by who closes it
};

// "127.0.0.1:9464", "[::1]:9464" or "unix:<absolute path>". A unix socket is made with mode 0666:
// its folder says who may come near.
Result<ListenSocket> open_listen_socket(const std::string& address);

}  // namespace arcomm
