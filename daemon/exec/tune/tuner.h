// Measures the algorithms on this machine and makes a tuning table of it.
// Thread: any; it brings its own memory, and runs on the caller's thread and on the given device's
// streams.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "daemon/plan/tuning/tuning_table.h"
#include "proto/status.h"

namespace arcomm {

class Device;

struct TuneOptions {
  std::uint64_t max_bytes = 64ull << 20;  // the ladder ends here; 0: the default
  std::chrono::milliseconds budget{
      20'000};                // points that no longer fit are left out; 0: the default
  std::uint64_t threads = 0;  // that reduce, as the executor is to have them; 0: one per core
};

// Called after each point; return false to stop, which keeps what was measured so far.
struct TuneStep {
  double progress = 0;  // 0..1
  TuningPoint point;
};
using TuneProgress = std::function<bool(const TuneStep&)>;

Result<TuningTable> tune(Device& device, const TuneOptions& options, const TuneProgress& progress);

}  // namespace arcomm
