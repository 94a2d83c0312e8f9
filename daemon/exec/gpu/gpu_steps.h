// Runs one step of a plan between the GPUs of a communicator: all ranks' parts, in the ranks'
// queues. Thread: the worker's. Never blocks.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/plan/plan.h"
#include "proto/status.h"

namespace arcomm {

// `calls` by rank; `parity` as GpuLauncher's. `launched`: bit r is set where rank r's part has
// begun or may have, after an error too.
Status run_step(const Step& step, const GpuGroup& group, std::uint32_t parity,
                std::span<const CudaAllReduce> calls, std::uint64_t& launched);

}  // namespace arcomm
