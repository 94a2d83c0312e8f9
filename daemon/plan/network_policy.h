// What decides how a communicator's operations run between its nodes, besides what they are: the
// same on all nodes for its epoch, as the daemon where it met had it in its settings and measured
// it, and as all of its nodes allow it. A value.
#pragma once

#include <cstdint>
#include <string>

#include "config/settings.h"

namespace arcomm {

// What travels in the time of one step (latency by throughput), where nothing was measured.
inline constexpr std::uint64_t kUsualStepBytes = std::uint64_t{64} << 10;
// What was measured is held to these.
inline constexpr std::uint64_t kLeastStepBytes = std::uint64_t{1} << 10;
inline constexpr std::uint64_t kMostStepBytes = std::uint64_t{64} << 20;

struct NetworkPolicy {
  NetOrder order = NetOrder::OfRanks;
  NetPartials partials = NetPartials::Wide;
  NetAlgorithm algorithm = NetAlgorithm::Auto;
  Settings::Ring ring = {};
  std::uint64_t step_bytes = kUsualStepBytes;
  std::uint64_t gpu_lanes = 0;  // 0: as network/gpu_exchange.h says
  // GPUs take codecs: gpu.codecs is on at every node of the communicator.
  bool gpu_codecs = true;
  std::string no_gpu_codecs_on = {};  // where not: the first node that keeps it so; "": not known

  // Of gpu_codecs as this daemon alone has it.
  static NetworkPolicy from(const Settings& settings, std::uint64_t step_bytes = kUsualStepBytes) {
    return {.order = settings.net.order,
            .partials = settings.net.partials,
            .algorithm = settings.net.algorithm,
            .ring = settings.ring,
            .step_bytes = step_bytes,
            .gpu_lanes = settings.net.gpu_lanes,
            .gpu_codecs = settings.gpu.codecs};
  }
  friend bool operator==(const NetworkPolicy&, const NetworkPolicy&) = default;
};

}  // namespace arcomm
