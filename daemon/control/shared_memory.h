// Memory that a client and the daemon share: memfds whose size is sealed and whose pages exist, so
// that no access of ours can fault, whatever the client does with its copy of the descriptor. Any
// thread; make_shared_memory may take long (it touches every page), so never call it on the control
// loop.
#pragma once

#include <cstdint>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

struct SharedMemory {
  UniqueFd fd;
  std::uint64_t length_bytes = 0;  // whole pages
};

// Rounds `bytes` up to whole pages. OutOfRange where that is not a size a file can have.
Result<std::uint64_t> round_to_pages(std::uint64_t bytes);

Result<SharedMemory> make_shared_memory(std::uint64_t bytes);

// Whether a descriptor offered by a client can be mapped safely: a memfd that cannot shrink and
// holds the range.
Status check_offered_memory(int fd, std::uint64_t offset_bytes, std::uint64_t length_bytes);

}  // namespace arcomm
