// The word to a stranger whose connection is refused or ended before gRPC would say anything: the
// frames of an HTTP/2 server that goes away and says why, so that the other end can tell "you may
// not" from "nobody is here". Any thread.
#pragma once

#include <string_view>

namespace arcomm {

// Never blocks; what does not fit into the socket is lost. `why` is for people and ends with what
// to do.
void say_refused(int socket_fd, std::string_view why);
// To one that sends too much (ENHANCE_YOUR_CALM). greeted: the server's first frame was sent.
void say_flooded(int socket_fd, std::string_view why, bool greeted);

}  // namespace arcomm
