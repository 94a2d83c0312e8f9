// The memory that an operation holds while it lasts: the caller's, where the daemon can reach it,
// and staging slots for what it cannot. Thread: any.
#pragma once

#include <cstdint>

#include "client/src/host/memory/staging.h"
#include "client/src/host/operation.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"

namespace arcomm::client {

class Session;

// The daemon's name for the memory at [address, +bytes), or none where it must be staged. Marks the
// buffer as in use.
Result<SharedRange> find_shared(const void* address, std::uint64_t bytes, Session& session,
                                Deadline deadline);

// What its call needs. After an error it may hold a part, which is given back as all is.
Status take_memory(Operation& operation, Deadline deadline);
// Once. staging: that of the operation's session.
void give_back_memory(Operation& operation, StagingPool& staging);

}  // namespace arcomm::client
