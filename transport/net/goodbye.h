// The end of a connection by whoever drives it, so that the peer sees an end and not a death.
#pragma once

#include <string_view>

#include "transport/net/connection.h"
#include "transport/net/receiver.h"

namespace arcomm::net {

// Closes it, unless it is being closed already, and drives it until what was posted and the goodbye
// have left: a tenth of a second at most. Thread: the connection's.
void say_goodbye(Connection& connection, Receiver& receiver, std::string_view why);

}  // namespace arcomm::net
