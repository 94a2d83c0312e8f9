// What communicators of GPUs that are formed from now on get: the launch table that follows from
// the node's tuning table and the setting gpu.algorithm; and from a communicator's table the plan
// of what is launched. Pure and deterministic. Thread: the owner's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "config/settings.h"
#include "daemon/plan/launch_table_builder.h"
#include "daemon/plan/operation.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "kernels/cuda_algorithms.h"
#include "proto/gpu/launch_table.h"

namespace arcomm {

class GpuPlanner {
 public:
  explicit GpuPlanner(std::shared_ptr<const TuningTable> tuning) : tuning_(std::move(tuning)) {}

  // Both hold for the tables that are made from now on.
  void use_tuning(std::shared_ptr<const TuningTable> tuning) { tuning_ = std::move(tuning); }
  void use_settings(const Settings& settings);

  // Fills in what this node's measurements and settings say; the rest of `facts` is the caller's.
  LaunchTable make_table(LaunchFacts facts) const;

 private:
  std::shared_ptr<const TuningTable> tuning_;
  std::optional<CudaAlgorithm> forced_;  // gpu.algorithm
};

// Which kernel is launched for which sizes among so many GPUs that can do that together: the forced
// one where it takes them, else the table's.
std::vector<LaunchedStretch> launched_stretches(const GpuTuningTable& table,
                                                std::optional<CudaAlgorithm> forced,
                                                std::uint32_t ranks, CudaAbilities abilities);

// Of an operation that is launched; what a client's own stream or the resident grid runs has none.
// has_slots: of a communicator of so many ranks, in their scratches.
Plan make_plan(const LaunchTable& launches, const Signature& signature, std::uint32_t ranks,
               bool has_slots);
// Whether such an operation would rather run with slots.
bool needs_slots(const LaunchTable& launches, const Signature& signature);
// Whether what such a plan launches serves the signature's codec; the error names what does not.
// why_no_codecs: of a communicator whose ranks are on several nodes (codec_words.h).
Status can_launch(const LaunchTable& launches, const Signature& signature,
                  std::string_view why_no_codecs);

// How an algorithm is run, of at least one element.
Step step_for(CudaAlgorithm algorithm);
// The algorithm that the step runs, as the flight recorder and people name it.
CudaAlgorithm algorithm_of(const Step& step);

}  // namespace arcomm
