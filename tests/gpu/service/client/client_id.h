// The unique id of a communicator, from rank 0 to the other processes. Of the process's options.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "client/include/arclient.h"

namespace arcomm::gpu {

// By a file, which rank 0 puts in place whole.
arcUniqueId exchange_id(const std::string& path);
// The same for other bytes: make fills them, on rank 0, and the others get what it has made.
void exchange_bytes(const std::string& path, std::span<std::byte> bytes,
                    const std::function<void()>& make);

// Returns when all ranks have called it with the same path: for those with short timeouts, whose
// processes need not begin at the same time.
void meet_by_files(const std::string& path);

}  // namespace arcomm::gpu
