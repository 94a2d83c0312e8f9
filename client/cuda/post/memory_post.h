// A start that the stream itself makes, by stream memory operations (cuStreamBatchMemOp) instead of
// the post kernel: for hosts where a kernel that polls is unwelcome. The values travel with it, so
// the host must know the number that the start takes: not once a graph may make starts, too.
#pragma once

#include <cstdint>

#include "client/cuda/post/post.h"

namespace arcomm::client {

struct MemoryPost {
  GpuPost post;              // order and called_before are not looked at, nor the timeout: whoever
                             // waits here waits until `done` says so (see stream_watch.h)
  std::uint32_t number = 0;  // of this start, in its path
  PlanNote note;             // of its plan, with this start
  bool waits_for_order =
      false;  // until the start before it has ended; a single stream sees to that
};

}  // namespace arcomm::client
