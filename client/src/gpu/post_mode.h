// How starts get from a caller's stream to the daemon: $ARCOMM_POST, read when a session on GPUs
// begins.
#pragma once

#include "proto/status.h"

namespace arcomm::client {

enum class PostMode {
  Kernel,  // "kernel", the default: a kernel of one thread, which polls
  Memory   // "memops": stream memory operations; no kernel of ours waits on the caller's stream
};

// InvalidArgument for any other word.
Result<PostMode> post_mode_from_environment();

}  // namespace arcomm::client
