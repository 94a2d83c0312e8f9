// How fast this node's algorithms are, on the host or between its GPUs: measured by `arctl tune`,
// kept in the state folder, and used from then on. Thread: any; blocks for the whole measurement.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "daemon/in_force.h"
#include "daemon/node_backend.h"
#include "daemon/operator/tune_call.h"
#include "daemon/workers.h"

namespace arcomm {

class NodeTuner {
 public:
  // By whoever decides with it from now on.
  using Use = std::function<void(const std::shared_ptr<const TuningTable>&)>;
  // All outlive it; touched once they serve.
  NodeTuner(InForce& in_force, const NodeBackend& backend, const Workers& workers, Use use)
      : in_force_(in_force), backend_(backend), workers_(workers), use_(std::move(use)) {}

  Status tune(const TuneCall& call, bool on_gpus);

 private:
  // 0 in the request: the tuners' own defaults.
  Result<TuningTable> measure_host(const TuneCall& call);
  Result<GpuTuningTable> measure_gpus(const TuneCall& call);

  InForce& in_force_;
  const NodeBackend& backend_;
  const Workers& workers_;
  const Use use_;
};

}  // namespace arcomm
