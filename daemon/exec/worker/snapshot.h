// A session and a communicator as values for people. Thread: the worker's.
#pragma once

#include <cstdint>

#include "daemon/comm/communicator.h"
#include "daemon/exec/snapshots.h"
#include "daemon/session/session.h"

namespace arcomm {

SessionSnapshot snapshot_of(const Session& session, std::uint64_t now_ns);
// Less what the backend knows: Backend::describe.
CommunicatorSnapshot snapshot_of(const Communicator& communicator, std::uint64_t now_ns);

}  // namespace arcomm
