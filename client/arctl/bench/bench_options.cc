#include "client/arctl/bench/bench_options.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "client/arctl/command_line/units.h"
#include "client/arctl/gpu/batches.h"
#include "proto/types.h"

namespace arcomm::arctl {
namespace {

constexpr std::uint32_t kHostRounds = 5;

template <typename... Parts>
Error refused(const Parts&... parts) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue, parts...);
}

Status take_codec(const BenchOptions& options, BenchPlan& plan) {
  const auto codec = parse_codec(options.codec);
  if (!codec) return refused("unknown codec: ", options.codec);
  plan.codec = *codec;
  if (plan.codec == Codec::None) return {};
  if (!codec_serves(plan.codec, plan.op, plan.dtype)) {
    return refused("--codec ", options.codec, " does not serve ", plan.op, " of ", plan.dtype, ": ",
                   kServedByCodecs);
  }
  return {};
}

Status take_sizes(const BenchOptions& options, BenchPlan& plan) {
  const auto from = parse_bytes(options.from), to = parse_bytes(options.to);
  if (!from || !to || *from > *to) {
    return refused("-b and -e want sizes such as 1K and 64M, the first not above the second; got ",
                   options.from, " and ", options.to);
  }
  const auto element = size_of(plan.dtype);
  if (plan.device == RankDevice::Gpu && *from < element) {
    return refused("-b ", options.from, " is less than one element of ", text_of(plan.dtype),
                   ": on GPUs there is nothing to time");
  }
  auto bytes = static_cast<double>(*from);
  for (;;) {
    const auto whole = static_cast<std::uint64_t>(bytes) / element * element;
    if (plan.sizes.empty() || plan.sizes.back() != whole) plan.sizes.push_back(whole);
    if (bytes == 0 || bytes * options.factor > static_cast<double>(*to)) return {};
    bytes *= options.factor;
  }
}

Status take_host(const BenchOptions& options, BenchPlan& plan) {
  for (const auto& [name, given] :
       {std::pair("--mode", !options.mode.empty()), std::pair("--gpus", !options.gpus.empty()),
        std::pair("--peers", !options.peers.empty()), std::pair("--nccl", !options.nccl.empty())}) {
    if (given) return refused(name, " is of GPUs: add --device gpu, or leave it out");
  }
  if (options.timing == "cuda-events") {
    return refused("--timing cuda-events is by a GPU's clock: add --device gpu, or time latency, ",
                   "throughput or p50");
  }
  if (options.memory == "cuda") {
    return refused(
        "--memory cuda is a GPU's: add --device gpu, or take shared, registered or heap");
  }
  plan.timing = options.timing == "throughput" ? Timing::Throughput
                : options.timing == "p50"      ? Timing::Each
                                               : Timing::Latency;
  if (options.persistent && plan.timing == Timing::Throughput) {
    return refused("--plan has one start at a time: use latency or p50 timing");
  }
  plan.memory = options.memory == "registered" ? RankMemory::Registered
                : options.memory == "heap"     ? RankMemory::Heap
                                               : RankMemory::Shared;
  plan.ranks = options.ranks.value_or(2);
  return {};
}

Status take_gpus(const BenchOptions& options, BenchPlan& plan) {
  const int listed = static_cast<int>(options.gpus.size());
  plan.ranks = options.ranks.value_or(listed != 0 ? listed : 2);
  if (std::cmp_greater(plan.ranks, kMaxGpuRanks)) {
    return refused("-r ", plan.ranks, " is too many for GPUs: a communicator has at most ",
                   kMaxGpuRanks, " of them");
  }
  if (listed != 0 && listed != plan.ranks) {
    return refused("--gpus names ", listed, " GPUs for ", plan.ranks,
                   " ranks: each rank needs one of its own");
  }
  plan.gpus = options.gpus;
  if (listed == 0) {
    plan.gpus.resize(static_cast<std::size_t>(plan.ranks));
    std::iota(plan.gpus.begin(), plan.gpus.end(), 0);
  }
  for (std::size_t i = 0; i < plan.gpus.size(); ++i) {
    const auto begin = plan.gpus.begin();
    if (std::find(begin, begin + static_cast<std::ptrdiff_t>(i), plan.gpus[i]) !=
        begin + static_cast<std::ptrdiff_t>(i)) {
      return refused("--gpus names GPU ", plan.gpus[i], " twice: each rank needs one of its own");
    }
  }
  return {};
}

Status take_contenders(const BenchOptions& options, BenchPlan& plan) {
  plan.contenders = {Contender::Arcommd};
  for (const Contender peer : {Contender::Nccl, Contender::NcclSymmetric}) {
    if (std::find(options.peers.begin(), options.peers.end(), text_of(peer)) !=
        options.peers.end()) {
      plan.contenders.push_back(peer);
    }
  }
  for (const std::string& name : options.peers) {
    if (name != text_of(Contender::Nccl) && name != text_of(Contender::NcclSymmetric))
      return refused("--peers knows nccl and nccl-symmetric; got ", name);
  }
  if (!options.nccl.empty() && plan.contenders.size() == 1)
    return refused("--nccl names a peer's library: add --peers nccl,nccl-symmetric");
  const bool rounds = (plan.ranks & (plan.ranks - 1)) != 0;
  if (plan.contenders.size() > 1 && plan.op == ReduceOp::Avg && rounds) {
    return refused("-o avg with --peers needs 2, 4 or 8 ranks, where all libraries round alike; ",
                   "got ", plan.ranks);
  }
  return {};
}

Status take_gpu(const BenchOptions& options, BenchPlan& plan) {
  if (options.persistent) {
    return refused(
        "--plan is of the host: on GPUs a graph (--mode graph) is what is made once and ",
        "started many times");
  }
  if (options.memory == "heap" || options.memory == "registered") {
    return refused("--memory ", options.memory,
                   " is the host's: on GPUs it is shared (arcMemAlloc) or cuda (cuMemAlloc)");
  }
  if (options.timing == "p50") {
    return refused("--timing p50 is of the host: on GPUs latency times every call on its own");
  }
  plan.timing = options.timing == "throughput" ? Timing::Throughput
                : options.timing == "latency"  ? Timing::Each
                                               : Timing::CudaEvents;
  plan.memory = options.memory == "cuda" ? RankMemory::Cuda : RankMemory::Shared;
  if (options.mode != "graph") plan.in_graph.push_back(false);
  if (options.mode != "stream") plan.in_graph.push_back(true);
  ARC_RETURN_IF_ERROR(take_gpus(options, plan));
  return take_contenders(options, plan);
}

}  // namespace

Result<BenchPlan> plan_of(const BenchOptions& options) {
  BenchPlan plan;
  const auto dtype = parse_dtype(options.dtype);
  const auto op = parse_op(options.op);
  if (!dtype || !op) return refused("unknown type or operation: ", options.dtype, ", ", options.op);
  plan.dtype = *dtype;
  plan.op = *op;
  plan.device = options.device == "gpu" ? RankDevice::Gpu : RankDevice::Host;
  const bool gpu = plan.device == RankDevice::Gpu;
  ARC_RETURN_IF_ERROR(gpu ? take_gpu(options, plan) : take_host(options, plan));
  ARC_RETURN_IF_ERROR(take_codec(options, plan));
  ARC_RETURN_IF_ERROR(take_sizes(options, plan));
  const std::string place = !options.place.empty() ? options.place : gpu ? "out" : "both";
  if (place != "in") plan.in_place.push_back(false);
  if (place != "out") plan.in_place.push_back(true);
  return plan;
}

std::string timing_name(const BenchPlan& plan) {
  switch (plan.timing) {
    case Timing::Latency:
      return "latency";
    case Timing::Throughput:
      return "throughput";
    case Timing::Each:
      return plan.device == RankDevice::Gpu ? "latency" : "p50";
    case Timing::CudaEvents:
      return "cuda-events";
  }
  return "unknown";
}

BenchCase case_of(const BenchPlan& plan, const BenchOptions& options, std::uint64_t bytes,
                  bool in_place) {
  BenchCase what;
  what.count = bytes / size_of(plan.dtype);
  what.dtype = plan.dtype;
  what.op = plan.op;
  what.codec = plan.codec;
  what.in_place = in_place;
  what.persistent = options.persistent;
  what.timing = plan.timing;
  what.iterations = options.iterations != 0 ? options.iterations : default_iterations(bytes);
  what.warmup = options.warmup.value_or(default_warmup(bytes));
  what.rounds = options.rounds.value_or(kHostRounds);
  if (plan.timing == Timing::Each) {
    what.rounds = std::max(1u, std::min(what.rounds, kMaxSamples / what.iterations));
  }
  return what;
}

BenchCase gpu_case_of(const BenchPlan& plan, const BenchOptions& options, std::uint64_t bytes,
                      bool in_place, Contender contender, bool in_graph) {
  const Batches batches = batches_of(bytes);
  BenchCase what = case_of(plan, options, bytes, in_place);
  what.contender = contender;
  what.in_graph = in_graph;
  what.iterations = options.iterations != 0 ? options.iterations : batches.operations;
  what.warmup = options.warmup.value_or(kGpuWarmup);
  what.rounds = options.rounds.value_or(batches.number);
  if (plan.timing == Timing::Each) {
    what.rounds = std::max(1u, std::min(what.rounds, kMaxSamples / what.iterations));
  } else if (in_graph) {
    what.iterations = whole_chains(what.iterations, kChain);
    what.warmup = whole_chains(what.warmup, kChain);
  }
  return what;
}

}  // namespace arcomm::arctl
