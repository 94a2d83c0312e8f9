#include "daemon/plan/gpu_planner.h"

#include "daemon/telemetry/log/log.h"

namespace arcomm {

void GpuPlanner::use_settings(const Settings& settings) {
  const Result<std::optional<CudaAlgorithm>> forced = forced_algorithm(settings.gpu.algorithm);
  if (!forced) return log::error("{}", forced.error().message);  // the daemon has looked before
  forced_ = *forced;
}

Plan GpuPlanner::make_plan(const Signature& signature, std::uint32_t ranks,
                           CudaAbilities abilities) const {
  const std::uint64_t bytes = signature.send_bytes();
  const CudaAlgorithm wanted =
      choose(tuning_->gpu, forced_, ranks, bytes, tuning_key_of(signature));
  const CudaAlgorithm algorithm = algorithm_among(abilities, wanted, bytes);
  Plan plan;
  // Of no elements a kernel tells the ranks that all have come.
  plan.add(signature.is_empty() ? KernelStep{algorithm} : step_for(algorithm));
  return plan;
}

Step step_for(CudaAlgorithm algorithm) {
  if (entry_of(algorithm).launches_all_ranks) return CopyStep{};
  return KernelStep{algorithm};
}

CudaAlgorithm algorithm_of(const Step& step) {
  const auto* kernel = std::get_if<KernelStep>(&step);
  return kernel != nullptr ? kernel->algorithm : CudaAlgorithm::CopyEngine;
}

}  // namespace arcomm
