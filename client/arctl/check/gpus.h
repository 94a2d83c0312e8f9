// The self-test of the node's GPUs through the daemon: each pair of them, then all together. It
// also says what cannot be had here, and why: no CUDA or no GPU, a daemon that serves none, no MPS,
// GPUs that do not reach each other, operations that are not in-stream. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/arctl/check/gpu_team.h"
#include "client/arctl/command_line/invocation.h"

namespace arcomm::arctl {

struct GpuCheckOptions {
  bool is_wanted = false;  // or they are tested where there are some
  std::vector<int> gpus;   // CUDA's numbers; empty: all that this process sees
  std::uint64_t largest_bytes = 0;
};

struct GpuCheck {
  std::string not_tested;            // why nothing was; "" where it was
  Status outcome;                    // why that is a failure, or the first team's failure
  std::string backend;               // the daemon's word; "" where it was not told
  GpusSeen seen;                     // by a process of this user, with this environment
  std::vector<std::string> remarks;  // what cannot be had, or is slow, and what to do
  std::vector<GpuTeamCheck> teams;   // in the order in which they ran

  std::uint64_t wrong() const;
};

GpuCheck check_gpus(const Invocation& invocation, const GpuCheckOptions& options);

// The GPUs of each team: pairs, where there are three GPUs or more, then all of them, on memory of
// both kinds.
std::vector<GpuTeamPlan> gpu_teams(const std::vector<int>& gpus, std::uint64_t largest_bytes);

// What is to be said of a daemon that serves GPUs, and of a process that sees them.
std::vector<std::string> gpu_remarks(const v1::StatusReply* status, const GpusSeen& seen);

}  // namespace arcomm::arctl
