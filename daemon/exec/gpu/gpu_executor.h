// Launches matched operations on their GPUs and takes back what has ended: executor.h's verbs for a
// GPU worker. One launch per rank, each on its own GPU, all in one order, so that no kernel waits
// for one that is queued behind it. Where a communicator repeats itself, its next operation is
// launched while this one runs, and waits in the queues for its call. Thread: the worker's. Never
// blocks, except in drain().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "config/settings.h"
#include "daemon/comm/communicator_table.h"
#include "daemon/exec/failpoint.h"
#include "daemon/exec/gpu/gpu_plane.h"
#include "daemon/memory/buffer_registry.h"
#include "daemon/plan/tuning_table.h"
#include "daemon/session/persistent_plan.h"

namespace arcomm {

class GpuExecutor {
 public:
  GpuExecutor(GpuPlane& plane, CommunicatorTable& communicators, const BufferRegistry& buffers,
              const PlanTable& plans, const std::vector<Device*>& gpus,
              std::shared_ptr<const TuningTable> tuning)
      : plane_(plane),
        communicators_(communicators),
        buffers_(buffers),
        plans_(plans),
        gpus_(gpus),
        tuning_(std::move(tuning)) {}
  GpuExecutor(const GpuExecutor&) = delete;
  GpuExecutor& operator=(const GpuExecutor&) = delete;

  // Both hold for what is launched from now on.
  void use_tuning(std::shared_ptr<const TuningTable> tuning) { tuning_ = std::move(tuning); }
  // Of a communicator that is formed now.
  std::uint64_t most_in_stream_bytes(std::uint32_t ranks) const {
    return tuning_->gpu.most_in_stream_bytes(ranks);
  }
  void use_settings(const Settings& settings);
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
    std::uint64_t since_ns = 0;
    std::uint64_t open_again_ns =
        0;                 // where it was launched speculatively: doubts whether that began
    bool doubted = false;  // once already
    bool waits =
        false;        // to be launched, until what was launched speculatively in its place has left
    Failure failure;  // the first
  };
  // One rank's memory in an operation, called or speculative.
  struct Part {
    SessionId session;
    BufferId send_buffer, recv_buffer;
    const std::byte* send = nullptr;
    std::byte* recv = nullptr;
  };
  using Parts = std::array<Part, kMaxGpuRanks>;

  void start(Communicator& communicator);
  // Launches it, or finds that it was launched speculatively. False: something else was, and has
  // not left.
  bool begin(Run& run, const Arrival& arrival);
  void launch(Run& run, const Arrival& arrival);
  CudaAlgorithm choose_for(const GpuGroup& group, const Signature& signature) const;
  // The doorbell that all ranks came through; number 0 where the numbers differ.
  static Gate gate_of(const Arrival& arrival, std::size_t ranks);
  // Rank's share of the operation, by the addresses at which its GPU finds everybody's memory.
  CudaAllReduce call_of(GpuGroup& group, Rank rank, const Signature& signature, const Parts& parts,
                        std::uint32_t number, std::uint64_t timeout_ns);
  // A run that waits: whether it has begun, or ended before that.
  bool go_on(std::size_t index);
  void open_again(Run& run);
  // None of its gates opened, and none will.
  void launch_again(Run& run);
  // Looks at the ranks whose part is open.
  void look_at(Run& run);
  void give_up_broken(Run& run);

  // ---- gpu_executor_speculation.cc ----
  // What runs on is left out of account: it is about what comes after `arrival`.
  void speculate_next(Communicator& communicator, const Arrival& arrival);
  bool speculate(Communicator& communicator, const Gate& gate);
  // Null where it could not be done: then it is launched without.
  PreparedParts* prepare(GpuGroup& group, const PlanTuple& plans, CudaAlgorithm algorithm,
                         std::span<const CudaAllReduce> calls);

  GpuPlane& plane_;
  CommunicatorTable& communicators_;
  const BufferRegistry& buffers_;
  const PlanTable& plans_;
  const std::vector<Device*>& gpus_;  // the worker's
  std::shared_ptr<const TuningTable> tuning_;
  std::optional<CudaAlgorithm> forced_;  // gpu.algorithm
  std::vector<Run> running_;
  const bool faults_ = failpoint("gpu.fault");
};

}  // namespace arcomm
