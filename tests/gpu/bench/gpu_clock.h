// Times what is enqueued on the streams of all ranks of a GpuNode: back to back, the slowest rank,
// the median of rounds.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>
#include <vector>

#include "tests/gpu/kernels/node/gpu_node.h"

namespace arcomm::gpu {

// Puts one operation on every rank's stream. False: it could not.
using Enqueue = std::function<bool()>;

class GpuClock {
 public:
  explicit GpuClock(GpuNode& node);

  // Microseconds for one of the `operations` that an `enqueue` stands for, of `launches` of them.
  // Negative: something failed.
  double time(const Enqueue& enqueue, int operations, int launches);
  // The same of a graph per rank into which `operations` were captured.
  double time_graph(const Enqueue& enqueue, int operations, int launches);

 private:
  void record(bool start);
  double slowest_us(int operations) const;

  GpuNode& node_;
  std::vector<std::pair<cudaEvent_t, cudaEvent_t>> events_;
};

}  // namespace arcomm::gpu
