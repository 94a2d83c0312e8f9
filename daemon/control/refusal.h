// The word to a stranger whose connection is refused at accept, before gRPC sees it: the first
// frames of an HTTP/2 server that goes away and says why, so that the other end can tell "you may
// not" from "nobody is here". Any thread.
#pragma once

#include <string_view>

namespace arcomm {

// Never blocks; what does not fit into the socket is lost. `why` is for people and ends with what
// to do.
void say_refused(int socket_fd, std::string_view why);

}  // namespace arcomm
