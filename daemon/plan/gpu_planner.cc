#include "daemon/plan/gpu_planner.h"

#include <algorithm>

#include "daemon/plan/recorded_algorithm.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {

void GpuPlanner::use_settings(const Settings& settings) {
  const Result<std::optional<CudaAlgorithm>> forced = forced_algorithm(settings.gpu.algorithm);
  if (!forced) return log::error("{}", forced.error().message);  // the daemon has looked before
  forced_ = *forced;
}

LaunchTable GpuPlanner::make_table(LaunchFacts facts) const {
  facts.most_in_stream_bytes =
      std::min(facts.most_in_stream_bytes, tuning_->gpu.most_in_stream_bytes(facts.ranks));
  facts.launched =
      launched_stretches(tuning_->gpu, forced_, facts.ranks,
                         CudaAbilities{.atomic_128b_stores = facts.atomic_128b_stores});
  return make_launch_table(facts);
}

std::vector<LaunchedStretch> launched_stretches(const GpuTuningTable& table,
                                                std::optional<CudaAlgorithm> forced,
                                                std::uint32_t ranks, CudaAbilities abilities) {
  // The sizes behind which the choice may be another one.
  std::vector<std::uint64_t> ends{kAnyBytes};
  for (const GpuTuningTable::Crossover& crossover : table.crossovers) {
    if (crossover.from_bytes != 0) ends.push_back(crossover.from_bytes - 1);
  }
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    const std::uint64_t most = most_bytes_of(entry.algorithm, ranks);
    if (most != 0) ends.push_back(most);
  }
  std::ranges::sort(ends);
  std::vector<LaunchedStretch> stretches;
  for (const std::uint64_t end : ends) {
    const CudaAlgorithm algorithm =
        algorithm_among(abilities, choose(table, forced, ranks, end), end);
    if (!stretches.empty() && stretches.back().algorithm == algorithm) {
      stretches.back().most_bytes = end;
    } else {
      stretches.push_back({.most_bytes = end, .algorithm = algorithm});
    }
  }
  return stretches;
}

Plan make_plan(const LaunchTable& launches, const Signature& signature, std::uint32_t ranks,
               bool has_slots) {
  static_assert(kCollectives == 1, "planned as an AllReduce, whatever the signature says");
  CudaAlgorithm algorithm = launched_algorithm(launches.find_launched(launch_key_of(signature)));
  if (!has_slots) algorithm = without_slots(algorithm, ranks);
  Plan plan;
  // Of no elements a kernel tells the ranks that all have come.
  plan.add(signature.is_empty() ? KernelStep{algorithm} : step_for(algorithm));
  return plan;
}

bool needs_slots(const LaunchTable& launches, const Signature& signature) {
  const std::uint8_t number = launches.find_launched(launch_key_of(signature));
  return !signature.is_empty() && number < cuda_algorithms().size() &&
         entry_of(launched_algorithm(number)).needs_slots;
}

Status can_launch(const LaunchTable& launches, const Signature& signature,
                  std::string_view why_no_codecs) {
  const std::uint8_t number = launches.find_launched(launch_key_of(signature));
  if (number < cuda_algorithms().size()) return serves(launched_algorithm(number), signature.codec);
  if (signature.codec == Codec::None || launches.takes_codec(launch_key_of(signature))) return {};
  return error(ErrorCode::InvalidArgument, Reason::Unsupported, name_of_recorded(number),
               " between nodes takes no codec ", text_of(signature.codec), " (number ",
               static_cast<unsigned>(signature.codec), ") here: ", why_no_codecs,
               "; ask for no codec");
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
