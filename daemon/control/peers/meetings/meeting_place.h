// At which daemon a communicator's nodes meet: the one whose address its unique id carries
// (proto/meeting_address.h), else the one of net.peers with the highest random weight for the id:
// the same on all nodes whose lists are. Any thread.
#pragma once

#include <string>
#include <vector>

#include "daemon/comm/unique_id.h"

namespace arcomm {

// "" where the id carries no address and there is none to choose from.
std::string meeting_place(const UniqueIdBytes& unique_id,
                          const std::vector<std::string>& addresses);

}  // namespace arcomm
