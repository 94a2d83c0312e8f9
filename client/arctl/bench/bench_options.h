// What `arctl bench` was asked for, as it was typed and as it is then done; and why not, where the
// options make no sense together. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/arctl/bench/bench_case.h"
#include "client/arctl/bench/rank_board.h"
#include "proto/status.h"

namespace arcomm::arctl {

// Empty, 0 and nullopt: not given.
struct BenchOptions {
  std::string from = "1K", to = "64M";
  double factor = 4;
  std::uint32_t iterations = 0;
  std::optional<std::uint32_t> warmup;
  std::optional<std::uint32_t> rounds;
  std::string dtype = "float32", op = "sum", codec = "none";
  std::optional<int> ranks;
  std::string device = "host";
  std::string timing;
  std::string memory = "shared";
  std::string place;
  bool persistent = false;
  // On GPUs only.
  std::vector<int> gpus;
  std::string mode;
  std::vector<std::string> peers;
  std::string nccl;
  // Instead of all the above: between daemons, to these addresses or to all.
  bool network = false;
  std::vector<std::string> daemons;
  // Instead of times: of -d, -o, --codec and -r, and of a file.
  bool accuracy = false;
  std::string data;
};

struct BenchPlan {
  std::vector<std::uint64_t> sizes;  // bytes, ascending
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
  int ranks = 2;
  RankDevice device = RankDevice::Host;
  Timing timing = Timing::Latency;
  RankMemory memory = RankMemory::Shared;
  std::vector<bool> in_place;         // false before true
  std::vector<bool> in_graph;         // on GPUs; false before true
  std::vector<int> gpus;              // by rank
  std::vector<Contender> contenders;  // on GPUs; arcommd's first
};

// InvalidArgument says which option, what it got, and what it wants.
Result<BenchPlan> plan_of(const BenchOptions& options);

// "latency", "throughput", "p50" or "cuda-events", as it is typed for that device.
std::string timing_name(const BenchPlan& plan);

// One measurement of the plan. On GPUs also of which contender, and whether it is in a graph.
BenchCase case_of(const BenchPlan& plan, const BenchOptions& options, std::uint64_t bytes,
                  bool in_place);
BenchCase gpu_case_of(const BenchPlan& plan, const BenchOptions& options, std::uint64_t bytes,
                      bool in_place, Contender contender, bool in_graph);

}  // namespace arcomm::arctl
