// What a forked child must not do: touch its parent's rings and sockets. The child of a process
// that attached finds every call refused (FailedPrecondition, Forked) and the parent's sockets
// closed, so that the parent's death still hangs them up.
// Thread: any. Nothing here takes a lock: the child runs it in whatever state fork found the
// parent.
#pragma once

#include "proto/status.h"

namespace arcomm::client {

// Installs the handler, once; called before the first attach.
void watch_for_fork();
bool is_forked_child();
Error forked_error();

void close_in_forked_child(int fd);
void keep_in_forked_child(int fd);

}  // namespace arcomm::client
