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

struct MissingPages {
  std::uint64_t bytes = 0;            // that the range may still lack
  std::uint64_t available_bytes = 0;  // on the node, what is promised included
};
// ResourceExhausted unless they can be had besides what is promised to others, for the daemon would
// be the one to touch them. Reads files, so not on the control loop.
Result<MissingPages> check_missing_pages(int fd, std::uint64_t length_bytes,
                                         std::uint64_t promised);

}  // namespace arcomm
