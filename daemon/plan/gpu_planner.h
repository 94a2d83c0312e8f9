// From an operation between GPUs to its plan: the setting gpu.algorithm where it names a kernel
// that can run it, else the table, among what these GPUs can do together. Pure and deterministic.
// Operations that a client's own stream or the resident grid runs have no plan. Thread: the
// owner's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "config/settings.h"
#include "daemon/plan/operation.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/tuning_table.h"
#include "kernels/cuda_algorithms.h"

namespace arcomm {

class GpuPlanner {
 public:
  explicit GpuPlanner(std::shared_ptr<const TuningTable> tuning) : tuning_(std::move(tuning)) {}

  // Both hold for what is planned from now on.
  void use_tuning(std::shared_ptr<const TuningTable> tuning) { tuning_ = std::move(tuning); }
  void use_settings(const Settings& settings);

  Plan make_plan(const Signature& signature, std::uint32_t ranks, CudaAbilities abilities) const;
  const GpuTuningTable& table() const { return tuning_->gpu; }

 private:
  std::shared_ptr<const TuningTable> tuning_;
  std::optional<CudaAlgorithm> forced_;  // gpu.algorithm
};

// How an algorithm is run, of at least one element.
Step step_for(CudaAlgorithm algorithm);
// The algorithm that the step runs, as the flight recorder and people name it.
CudaAlgorithm algorithm_of(const Step& step);

}  // namespace arcomm
