// Runs one step of a plan between the GPUs of a communicator: all ranks' parts, in the ranks'
// queues. Thread: the worker's. Never blocks.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/plan/operation.h"
#include "daemon/plan/plan.h"
#include "proto/status.h"

namespace arcomm {

// Of an operation that is launched now: another one may come where the group gets its slots.
Plan plan_of(const GpuGroup& group, const Signature& signature);
// What an operation of so many elements needs of the GPUs: LaunchRoom.
std::uint32_t blocks_of(const Step& step, const GpuGroup& group, const Signature& signature);

// `calls` by rank; `parity` as GpuLauncher's. `launched`: bit r is set where rank r's part has
// begun or may have, after an error too.
Status run_step(const Step& step, const GpuGroup& group, std::uint32_t parity,
                std::span<const CudaAllReduce> calls, std::uint64_t& launched);

}  // namespace arcomm
