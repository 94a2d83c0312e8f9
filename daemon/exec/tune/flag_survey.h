// What flags take on each of the node's GPUs, through the worker that owns them: for `arctl bench
// --network`. Thread: any but the worker's; blocks, and each wait for the worker has a deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/exec/specs.h"
#include "proto/status.h"

namespace arcomm {

class DeviceWorker;

// By GPU, in the worker's order; why there is none in the place of what could not be measured.
// Cancelled once it was told to stop.
Result<std::vector<Result<FlagEcho>>> survey_flags(DeviceWorker& worker, std::uint32_t gpus,
                                                   const std::function<bool()>& cancelled);

}  // namespace arcomm
