// Times kernels between the worker's first GPUs, as a communicator of the daemon's own: what
// `arctl tune` measures. Its memory is deferred for release with it, and what runs then is stopped.
// Thread: the worker's, which goes on with a measurement turn by turn: what waits for a kernel
// watches it for some milliseconds, for the sake of the clock, and then lets the turn end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/exec/gpu/measure/timed_launches.h"
#include "daemon/exec/specs.h"

namespace arcomm {

class GpuBench {
 public:
  // Between the first `ranks` GPUs, with memory for operations of up to `room_bytes`.
  static Result<std::unique_ptr<GpuBench>> create(GpuGroups& groups, std::uint32_t ranks,
                                                  std::uint64_t room_bytes);
  ~GpuBench();
  GpuBench(const GpuBench&) = delete;
  GpuBench& operator=(const GpuBench&) = delete;

  // Takes the memory, or for as large operations as there is memory for: then the number of their
  // bytes. None: call again, in another turn. Unavailable: the same, once the GPUs can be quiesced.
  Result<std::optional<std::uint64_t>> prepare();

  // Microseconds of one out-of-place sum of bfloat16 between operations that follow one another in
  // the ranks' queues: the median of several rounds. After an error nothing more can be measured
  // here, but for OutOfRange: the kernel does not take such an operation between these GPUs.
  // DataLoss: the sums were wrong. Each round has inputs of its own and poisoned outputs
  // (kernels/trial/trial.h), and what its last operation left is looked at.
  Status begin(const GpuMeasurement& what);
  bool is_ready() const { return launches_ && has_buffers(); }
  bool is_busy() const { return stage_ != Stage::Idle; }
  // While it is busy. None: call again, in another turn.
  Result<std::optional<double>> go_on();

 private:
  enum class Stage : std::uint8_t {
    Idle,
    Filling,   // the ranks get new inputs
    Running,   // so many operations at once
    Checking,  // what the last one made of them
    Stopping   // after an error: nothing of what was launched runs behind it, or the bench is stuck
  };

  GpuBench(GpuGroups& groups, std::uint32_t ranks, std::uint64_t room_bytes);
  Status take_buffers();
  bool has_buffers() const;
  void return_buffers();
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(group_->members.size()); }
  Status can_measure(const GpuMeasurement& what) const;
  TrialCall trial_of(const GpuMember& member, std::uint64_t bytes) const;
  // Goes on by a stage, if the GPUs are so far.
  Result<bool> step();
  void enter(Stage stage, std::uint64_t limit_ns);
  Status fill();
  Status launch();
  Status check();
  Status read_check() const;
  void end_round();
  void stop();
  // Whether all of them are so far; the error says what has failed, or that it takes too long.
  Result<bool> are_idle() const;

  GpuGroups& groups_;
  std::unique_ptr<GpuGroup> group_;
  CommunicatorSpec spec_;
  std::vector<TrialBuffers> buffers_;      // by rank
  std::optional<TimedLaunches> launches_;  // once the group is whole
  std::uint64_t room_bytes_ = 0;
  Stage stage_ = Stage::Idle;
  std::uint64_t limit_ns_ = 0;  // when the stage has taken too long
  GpuMeasurement what_;
  std::uint32_t times_ = 0;            // operations of this round
  std::vector<std::uint64_t> rounds_;  // how long each took
  std::uint64_t begun_ns_ = 0, took_ns_ = 0;
  Error why_;               // of what stops
  std::uint32_t seed_ = 0;  // of the inputs
  bool failed_ = false;
  bool stuck_ = false;  // its memory is still in use
};

}  // namespace arcomm
