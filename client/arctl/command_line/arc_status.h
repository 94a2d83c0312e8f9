// libarclient's results as this project's errors. Any thread; of the calling thread's last failure.
#pragma once

#include "client/include/arclient.h"
#include "proto/status.h"

namespace arcomm::arctl {

// Of the call that this thread has just made.
Status status_of(arcResult_t result);

}  // namespace arcomm::arctl
