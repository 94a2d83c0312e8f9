// Which codec a call gets: the one that it names, the one that the communicator's launch table has
// for its error class, or, where it says nothing, what the communicator has for default. Any
// thread.
#pragma once

#include <optional>

#include "client/src/host/collective_call.h"
#include "client/src/host/member.h"
#include "proto/coding.h"
#include "proto/status.h"

namespace arcomm::client {

// Sets the call's codec and origin. asked: nullopt where the call says nothing. An error names the
// codec, and says whether it was the default.
Status choose_codec(const std::optional<Coding>& asked, const Member& member, CollectiveCall& call);

}  // namespace arcomm::client
