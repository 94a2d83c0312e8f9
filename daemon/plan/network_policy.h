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

// The version of the rules by which error classes get codecs between nodes
// (network/coding_between_nodes.h): daemons whose rules differ might choose different ones. A new
// kLaunchTableVersion (proto/gpu/launch_table.h) raises it, too: libraries choose by those tables,
// and whoever cannot read one chooses none.
inline constexpr std::uint32_t kCodingRules = 2;

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

  // By which rules error classes get codecs on all of its nodes; others than ours, as 0: they get
  // none.
  std::uint32_t coding_rules = kCodingRules;
  std::uint64_t link_bytes_per_second = 0;  // each way, as it was measured; 0: it was not

  // Of gpu_codecs and coding_rules as this daemon alone has them.
  static NetworkPolicy from(const Settings& settings, std::uint64_t step_bytes = kUsualStepBytes,
                            std::uint64_t link_bytes_per_second = 0) {
    return {.order = settings.net.order,
            .partials = settings.net.partials,
            .algorithm = settings.net.algorithm,
            .ring = settings.ring,
            .step_bytes = step_bytes,
            .gpu_lanes = settings.net.gpu_lanes,
            .gpu_codecs = settings.gpu.codecs,
            .link_bytes_per_second = link_bytes_per_second};
  }
  friend bool operator==(const NetworkPolicy&, const NetworkPolicy&) = default;
};

}  // namespace arcomm
