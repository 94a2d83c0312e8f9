// Why an algorithm is chosen, and what came second: for `arctl tune --explain SIZE`.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/plan/explanation.h"
#include "daemon/plan/planner.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "proto/types.h"

namespace arcomm {

// What happens on the host: small operations run within the ranks' calls, "in_call", with what the
// planner chooses for the worker as the runner-up. setting: host.in_call_bytes.
Explanation explain(const TuningTable& table, const DeviceShape& shape, std::int64_t setting,
                    std::uint32_t ranks, std::uint64_t bytes, DType dtype);
// What happens between GPUs, where small operations are not launched by the daemon: those are
// "in-stream" or "resident", with what would be launched as the runner-up (or "resident", where
// in-stream ones were not measured). forced: gpu.algorithm; in-stream: gpu.in_stream.
Explanation explain(const GpuTuningTable& table, std::optional<CudaAlgorithm> forced,
                    std::uint32_t ranks, std::uint64_t bytes, DType dtype, bool in_stream);

}  // namespace arcomm
