// Whether what was measured is what the planner takes for that size: the mark in `arctl tune`. By
// the same functions as --explain, so that the two agree: what is split over threads counts more
// than its time, and one bound for all sizes says what is in-stream. Pure; any thread.
#pragma once

#include <optional>

#include "daemon/plan/planner.h"
#include "daemon/plan/tuning/tuning_table.h"

namespace arcomm {

// `table`: the one that holds the point, settled.
bool is_chosen(const TuningTable& table, const DeviceShape& shape, const TuningPoint& point);
// forced: gpu.algorithm; in_stream: gpu.in_stream. No point is chosen of a size that the resident
// kernel takes, which nobody measures.
bool is_chosen(const GpuTuningTable& table, std::optional<CudaAlgorithm> forced, bool in_stream,
               const GpuTuningPoint& point);

}  // namespace arcomm
