// The control plane's policy on memory that a client and the daemon share; how it is made and what
// may be mapped at all is transport's. Any thread.
#pragma once

#include <cstdint>

#include "proto/status.h"
#include "transport/device/sealed_memory.h"

namespace arcomm {

// Whether a range of a descriptor offered by a client can become a buffer: mappable (PeerMapping's
// rule), and at whole pages.
Status check_offered_memory(int fd, std::uint64_t offset_bytes, std::uint64_t length_bytes);

// Whether the pages that the range may still lack can be had, besides what is promised to others:
// the daemon would be the one to touch them. Reads files, so not on the control loop.
Status check_missing_pages(int fd, std::uint64_t length_bytes, std::uint64_t promised);

}  // namespace arcomm
