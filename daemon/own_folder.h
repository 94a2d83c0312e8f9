// A folder of the daemon's: made with the mode that it is to have, whatever the umask, and refused
// where somebody else could replace what is in it. Any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "proto/status.h"

namespace arcomm {

// Makes the folder, and what is missing above it with the mode 0755. One that is there keeps its
// mode, but for the right of others to write. PermissionDenied where it belongs to neither this
// user nor root, or where it is root's, others may write to it, and that cannot be changed.
Status own_folder(const std::string& path, mode_t mode);

}  // namespace arcomm
