// How a worker comes to its backend: who chooses the hardware gives it one of these, and the worker
// calls it once, at its start, with what the backend shares with it.
#pragma once

#include <functional>
#include <memory>

#include "config/settings.h"
#include "daemon/session/persistent_plan.h"
#include "proto/status.h"

namespace arcomm {

class Backend;
class BufferRegistry;
class Metrics;
struct TuningTable;

// All but the tuning table outlives the backend.
struct BackendParts {
  BufferRegistry& buffers;
  const PlanTable& plans;
  Metrics& metrics;
  const Settings& settings;
  std::shared_ptr<const TuningTable> tuning;
};

// On the thread that makes the worker; slow.
using OpenBackend = std::function<Result<std::unique_ptr<Backend>>(const BackendParts&)>;

}  // namespace arcomm
