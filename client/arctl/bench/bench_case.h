// One measurement that every rank runs the same way: what is reduced, how often, and what is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/arctl/bench/accuracy/data.h"
#include "client/arctl/bench/accuracy/judge.h"
#include "proto/types.h"

namespace arcomm::arctl {

enum class Timing : std::uint8_t {
  Latency,     // one blocking call after the other; a sample is a round's mean
  Throughput,  // several in flight (16; on GPUs all of a round); a sample is a round's mean
  Each,        // every call on its own; a sample is one call ("p50", on GPUs "latency")
  CudaEvents,  // GPUs: all of a round on a stream, by its own clock; a sample is a round's mean
};

enum class CaseKind : std::uint8_t {
  AllReduce,
  Survey,  // GPUs: what the process sees of them; the daemon is not asked
  // GPUs: the contender gets ready. Its note says what it is; or why not, where it is refused.
  Open,
  Accuracy,  // on the host: one AllReduce of `data`, judged by each rank
  PeerCopy,  // GPUs: each rank copies to the next rank's; a sample is one copy (kPeerCopyBytes)
};

// Whose AllReduce is timed. Not arcommd's: GPUs only.
enum class Contender : std::uint8_t { Arcommd, Nccl, NcclSymmetric };
inline constexpr std::size_t kContenders = 3;
std::string_view text_of(Contender contender);  // "arcommd", "nccl", "nccl-symmetric"

inline constexpr std::uint64_t kPeerCopyBytes = 256 << 20;

struct BenchCase {
  CaseKind kind = CaseKind::AllReduce;
  Contender contender = Contender::Arcommd;
  bool in_graph = false;    // GPUs: captured once and replayed, kChain operations at a time
  std::uint64_t count = 0;  // elements
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
  AccuracyData data = AccuracyData::Gaussian;  // of an Accuracy case
  bool in_place = false;
  bool persistent = false;  // through a plan that is made once
  Timing timing = Timing::Latency;
  std::uint32_t warmup = 0;
  std::uint32_t iterations = 1;  // per round
  std::uint32_t rounds = 1;

  std::uint64_t bytes() const { return count * size_of(dtype); }
  std::uint64_t samples() const {
    return timing == Timing::Each ? std::uint64_t{rounds} * iterations : rounds;
  }
};

// What a process sees of the node's GPUs.
struct GpusSeen {
  std::int32_t count = 0;
  bool under_mps = false;  // an MPS server serves the process on all of them
};

struct Measured {
  std::vector<double> samples_us;   // each the slowest rank's, in order
  std::uint64_t wrong = 0;          // elements, over all ranks
  std::uint64_t checked_bytes = 0;  // GPUs: of each round's result
  bool refused = false;             // a rank could not open the contender
  std::string note;                 // what a rank said: why it refused, else the first's
  GpusSeen seen;                    // of a survey, by rank 0
  AccuracyFound accuracy;           // of an Accuracy case, by rank 0
  bool results_differ = false;      // between the ranks, then

  double percentile_us(double fraction) const;  // 0.5: the median
};

struct Bandwidth {
  double algorithm_gb_s = 0;  // bytes / time
  double bus_gb_s = 0;        // times 2 (n - 1) / n: what each link carries
};
Bandwidth bandwidth(std::uint64_t bytes, double us, int ranks);

// Enough repetitions for a steady figure, few enough to wait for: 2 for the largest sizes, 1000 for
// the smallest.
std::uint32_t default_iterations(std::uint64_t bytes);
// Repetitions before the clock starts: 4096 for the smallest sizes, which last as long as a
// scheduler may take to spread processes that woke on one core (30 ms were seen on 2 cores), 5 for
// the largest.
std::uint32_t default_warmup(std::uint64_t bytes);

// "float32" or "float", "half", "double", "bf16", ... as nccl-tests spells them.
std::optional<DType> parse_dtype(std::string_view text);
std::optional<ReduceOp> parse_op(std::string_view text);
std::optional<Codec> parse_codec(std::string_view text);  // "q8_rotated"

}  // namespace arcomm::arctl
