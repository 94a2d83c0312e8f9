// Launches matched operations on their GPUs and takes back what has ended: executor.h's verbs for a
// GPU worker. One launch per rank, each on its own GPU's queue, all in one order, so that no kernel
// waits for one that is queued behind it. Thread: the worker's. Never blocks, except in drain().
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/comm/communicator_table.h"
#include "daemon/exec/gpu_plane.h"
#include "daemon/memory/buffer_registry.h"

namespace arcomm {

// Which kernel for so many bytes, larger than the resident lane's; README.md's table of GPUs.
CudaAlgorithm choose_algorithm(std::uint64_t bytes, std::uint32_t ranks);

class GpuExecutor {
 public:
  GpuExecutor(GpuPlane& plane, CommunicatorTable& communicators, const BufferRegistry& buffers,
              const std::vector<Device*>& gpus)
      : plane_(plane), communicators_(communicators), buffers_(buffers), gpus_(gpus) {}
  GpuExecutor(const GpuExecutor&) = delete;
  GpuExecutor& operator=(const GpuExecutor&) = delete;

  // Starts one operation that may run. Returns whether there was any.
  bool start_next();
  // Takes back what has ended, which may have freed its communicator. Returns whether there was
  // any.
  bool reap();
  // The communicator's running operation ends as soon as its kernels see it; then reap() reports
  // it.
  void stop(const Communicator& communicator);
  // Waits until nothing runs, a few seconds at most. Everything has been stopped before.
  void drain();
  bool idle() const { return running_.empty(); }

 private:
  struct Run {
    Communicator* communicator = nullptr;
    std::uint64_t open = 0;  // bit r: rank r's part was launched and has not ended
    std::uint64_t stopped_ns = 0;
    Failure failure;  // the first
  };

  void start(Communicator& communicator);
  void launch(Run& run, const Arrival& arrival);
  void name_memory(const Arrival& arrival, int ordinal, CudaAllReduce& call) const;
  // Looks at the ranks whose part is open.
  void look_at(Run& run);
  void give_up_broken(Run& run);

  GpuPlane& plane_;
  CommunicatorTable& communicators_;
  const BufferRegistry& buffers_;
  const std::vector<Device*>& gpus_;  // the worker's
  std::vector<Run> running_;
};

}  // namespace arcomm
