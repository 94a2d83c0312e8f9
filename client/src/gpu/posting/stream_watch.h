// The thread that looks after streams which wait by stream memory operations. There is none until
// one does, and it sleeps while none does. Thread: any.
#pragma once

#include <memory>

#include "client/src/gpu/posting/memory_starts.h"
#include "proto/status.h"

namespace arcomm::client {

// Called before each start. `starts` is kept until none of its streams waits any more. Whoever owns
// the mailbox calls leave_streams(), or never unmaps it: CUDA unmaps memory when all streams have
// come to rest, and the thread on which they wait must not be the one to wait for that.
// ResourceExhausted when the system has no thread for it.
Status watch_streams(const std::shared_ptr<MemoryStarts>& starts);
// On the thread itself.
bool is_stream_watch();
// None of them waits any more: nothing of it is used from here on. Blocks for a look.
void leave_streams(const std::shared_ptr<MemoryStarts>& starts);

}  // namespace arcomm::client
