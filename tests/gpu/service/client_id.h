// The unique id of a communicator, from rank 0 to the other processes. Of the process's options.
#pragma once

#include <string>

#include "client/include/arclient.h"

namespace arcomm::gpu {

// By a file, which rank 0 puts in place whole.
arcUniqueId exchange_id(const std::string& path);

// Returns when all ranks have called it with the same path: for those with short timeouts, whose
// processes need not begin at the same time.
void meet_by_files(const std::string& path);

}  // namespace arcomm::gpu
