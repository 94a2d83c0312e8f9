// Whether all cores of this machine have one last cache in common: a part that is handed to a peer
// then comes from there, and else from the peer's own cache, or from memory. No state; any thread.
#pragma once

#include <string>

namespace arcomm::client {

// root: "", or a folder with a `sys` of its own, for tests. False where the machine does not say.
bool cores_share_a_cache(const std::string& root);

}  // namespace arcomm::client
