// What callers put into the C API's config structs, as values: sizes of older and newer headers,
// options that this library does not know, numbers that are none. No state; any thread.
#pragma once

#include <optional>

#include "client/include/arclient.h"
#include "client/src/session/communicator.h"
#include "proto/coding.h"
#include "proto/status.h"

namespace arcomm::client {

// nullopt where config is null.
Result<std::optional<Coding>> read_config(const arcAllReduceConfig_t* config);
Result<CommunicatorConfig> read_config(const arcCommConfig_t* config);

}  // namespace arcomm::client
