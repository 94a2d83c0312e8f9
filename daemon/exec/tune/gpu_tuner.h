// Measures the kernels between this node's GPUs, through the worker that owns them, and makes a
// tuning table of it. Thread: any but the worker's; blocks, and each wait for the worker has a
// deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "daemon/plan/tuning/gpu_tuning_table.h"
#include "proto/status.h"

namespace arcomm {

class DeviceWorker;

struct GpuTuneOptions {
  std::uint64_t max_bytes = 1ull << 30;  // the ladder ends here, or where memory does; 0: the same
  // Points that no longer fit are left out; 0: the default.
  std::chrono::milliseconds budget{90'000};
};

// Called after each point; return false to stop, which keeps what was measured so far.
struct GpuTuneStep {
  double progress = 0;  // 0..1
  GpuTuningPoint point;
};
using GpuTuneProgress = std::function<bool(const GpuTuneStep&)>;

// On 2, 4 and 8 of the worker's `gpus` GPUs, as many as there are, and on all of them. A kernel
// that fails is left out, with a warning in the log, and one whose sums are wrong is in no point of
// the table. FailedPrecondition while communicators are on
// the GPUs, or when one comes meanwhile.
Result<GpuTuningTable> tune_gpus(DeviceWorker& worker, std::uint32_t gpus,
                                 const GpuTuneOptions& options, const GpuTuneProgress& progress);

}  // namespace arcomm
