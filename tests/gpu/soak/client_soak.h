// Minutes of what inference servers do, for what only shows then: graphs of many operations of two
// communicators over the same GPUs, replayed a hundred thousand times with other inputs each time,
// by ranks that drift apart, with calls in between; results held to the reference bit for bit.
#pragma once

#include "client/include/arclient.h"

namespace arcomm::gpu {

// As options.soak_seconds, .replays and .seed say, of which all ranks were given the same. Ends
// the process where anything is not as it must be; otherwise rank 0 prints one line.
void soak(arcUniqueId id);

}  // namespace arcomm::gpu
