// One rank's part of a timed case: batches of operations on the GPU's stream, begun by all ranks
// together, and what comes out of every batch held to what it must be. Thread: the device's.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "client/arctl/bench/rank_board.h"
#include "client/arctl/gpu/contenders/contender.h"
#include "client/arctl/gpu/device.h"
#include "client/arctl/gpu/inputs.h"

namespace arcomm::arctl {

class TimedRun {
 public:
  // Allocates pinned memory for what is looked at of a result.
  static Result<TimedRun> create(const RankBoard& board, Rank rank, GpuDevice& device);

  // Leaves samples, wrong elements and the first of them on the board. `what` has whole graphs
  // (whole_chains) where it is in_graph, and is the same on all ranks.
  Status run(const BenchCase& what, GpuContender& contender);

 private:
  // Operations on the stream: so many, in as many calls or launches as that takes.
  using Enqueue = std::function<Status(std::uint32_t operations)>;
  struct Batch {
    const GpuInputs& inputs;
    std::uint64_t shift = 0;  // the inputs' element that this batch begins with
    std::byte *in = nullptr, *out = nullptr;
  };

  TimedRun(const RankBoard& board, Rank rank, GpuDevice& device, std::byte* pinned)
      : board_(board), rank_(rank), device_(device), pinned_(pinned) {}

  void draw_inputs(const BenchCase& what);
  Batch draw_batch(const BenchCase& what, const GpuContender& contender);
  Status prepare(const BenchCase& what, const Batch& batch);
  Status time(const BenchCase& what, GpuContender& contender, const Enqueue& enqueue);
  Status check(const BenchCase& what, const Batch& batch, const std::string& where);
  // In place sums are timed on zeros: once on real inputs, the same way and not timed.
  Status check_once(const BenchCase& what, GpuContender& contender);

  // For the stream, on which there are so many operations of the case; the parent hears meanwhile
  // that this rank lives.
  Status wait(const BenchCase& what, std::uint32_t operations,
              GpuDevice::Clock::time_point from = GpuDevice::Clock::now());
  Status all_here();
  Status finish(const BenchCase& what, std::uint32_t operations, GpuContender& contender);

  const RankBoard& board_;
  Rank rank_;
  GpuDevice& device_;
  std::byte* pinned_;
  // The ranks draw the same, or their inputs would not fit together.
  std::mt19937_64 random_;
  std::vector<GpuInputs> inputs_;
  std::optional<GpuInputs> zeros_;
  DType dtype_ = DType::Float32;  // of the inputs
  ReduceOp op_ = ReduceOp::Sum;
};

}  // namespace arcomm::arctl
