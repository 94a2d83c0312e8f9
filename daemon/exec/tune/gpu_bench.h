// Times kernels between the worker's first GPUs, as a communicator of the daemon's own: what
// `arctl tune` measures. Its memory is deferred for release with it. Thread: the worker's;
// measure() blocks it for some tens of milliseconds, and for seconds where a kernel hangs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/exec/specs.h"

namespace arcomm {

class GpuBench {
 public:
  // Between the first `ranks` GPUs. Takes memory for operations of up to `room_bytes`, or for as
  // large ones as there is memory for.
  static Result<std::unique_ptr<GpuBench>> create(GpuGroups& groups, std::uint32_t ranks,
                                                  std::uint64_t room_bytes);
  ~GpuBench();
  GpuBench(const GpuBench&) = delete;
  GpuBench& operator=(const GpuBench&) = delete;

  std::uint64_t room_bytes() const { return room_bytes_; }
  // Microseconds of one out-of-place sum of bfloat16 between operations that follow one another in
  // the ranks' queues: the median of several rounds. After an error nothing more can be measured
  // here, but for OutOfRange: the kernel does not take such an operation between these GPUs.
  // DataLoss: the sums were wrong. Each round has inputs of its own and poisoned outputs
  // (kernels/trial/trial.h), and what its last operation left is looked at.
  Result<double> measure(const GpuMeasurement& what);

 private:
  struct Part {
    Memory send, recv;
  };

  explicit GpuBench(GpuGroups& groups) : groups_(groups) {}
  Status take_buffers(std::uint64_t bytes);
  void return_buffers();
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(group_->members.size()); }
  Status can_measure(const GpuMeasurement& what) const;
  InStreamShape in_stream_shape_of(std::uint64_t bytes) const;  // no blocks: it is not
  CudaAllReduce call_of(const GpuMember& member, std::uint64_t bytes) const;
  InStreamCall in_stream_call_of(const GpuMember& member, std::uint64_t bytes) const;
  // Whether its launches can be held back until all have been made.
  bool can_wait(const GpuMeasurement& what) const;
  TrialCall trial_of(const GpuMember& member, std::uint64_t bytes) const;
  // New inputs on all ranks; returns when they are there.
  Status fill(std::uint64_t bytes);
  // What the last operation made of them.
  Status check(std::uint64_t bytes);
  Status wait_idle();
  // So many operations at once; how long they took together.
  Result<std::uint64_t> run(const GpuMeasurement& what, std::uint32_t times);
  Result<std::uint64_t> run_trial(const GpuMeasurement& what, std::uint32_t times);
  Status launch(const GpuMeasurement& what, std::uint32_t times);
  Status launch_in_stream(std::uint64_t bytes, std::uint32_t times);
  // From now on the ranks' queues may run. Returns when the last of them was told.
  Result<std::uint64_t> open();
  Status wait(const GpuMeasurement& what);
  // Whether the rank's part has ended; the error says how it failed.
  Result<bool> has_ended(const GpuMember& member) const;
  Result<bool> has_ended_in_stream(const GpuMember& member) const;
  // Nothing of what was launched runs after it, or the bench is stuck.
  void stop();

  GpuGroups& groups_;
  std::unique_ptr<GpuGroup> group_;
  std::vector<Part> parts_;  // by rank
  std::uint64_t room_bytes_ = 0;
  Gate gate_;                 // of the operations that are timed together
  std::uint32_t number_ = 0;  // of the last operation that was launched
  std::uint32_t seed_ = 0;    // of the inputs
  bool failed_ = false;
  bool stuck_ = false;  // its memory is still in use
};

}  // namespace arcomm
