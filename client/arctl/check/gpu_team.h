// The self-test of some GPUs of the node: a rank process on each of them, in one communicator of
// the daemon's. They copy to each other where the hardware can, then reduce random data; every
// element is checked, and what lies behind a result. One thread; every wait has a deadline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/arctl/bench/rank_board.h"
#include "client/arctl/command_line/invocation.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {

struct GpuTeamPlan {
  std::vector<int> gpus;  // by rank, CUDA's numbers
  RankMemory memory = RankMemory::Shared;
  // Every type with every operation; else sums of a type of 2, of 4 bytes and of an integer.
  bool is_thorough = false;
  std::uint64_t largest_bytes = 0;  // the size after the small ones
};

struct GpuTeamCheck {
  GpuTeamPlan plan;
  std::string gpu;  // what rank 0 says of its GPU and CUDA
  // GB/s that each GPU copied to the next one, all at once; else why there is no figure.
  std::optional<double> copies_gb_s;
  std::string copies_why;
  std::uint64_t operations = 0, bytes = 0, wrong = 0;
  double slowest_us = 0;
  std::string first_wrong;
  // As the daemon tells of it; else why it was not asked.
  std::optional<v1::CommunicatorStatus> communicator;
  std::string communicator_why;
  Status outcome;  // why it ended before everything was checked
};

GpuTeamCheck check_gpu_team(const Invocation& invocation, const GpuTeamPlan& plan);

}  // namespace arcomm::arctl
