// Operations that are timed together: they follow one another in the queues of a group's ranks, and
// begin once all of them are there. Thread: the worker's; waits for nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/exec/specs.h"

namespace arcomm {

// What a rank sends and where its result goes.
struct TrialBuffers {
  Memory send, recv;
};

class TimedLaunches {
 public:
  // Both outlive this; buffers: by rank.
  TimedLaunches(GpuGroup& group, const std::vector<TrialBuffers>& buffers)
      : group_(group), buffers_(buffers) {}

  // How an operation of so many bytes, of kTrialType, is launched in-stream; no blocks: it is not.
  InStreamShape shape_in_stream(std::uint64_t bytes) const;
  // So many of them, out of place. Returns when they could begin, in now_ns().
  Result<std::uint64_t> launch(const GpuMeasurement& what, std::uint32_t times);
  // Whether the last of them has on all ranks; the error says what has failed.
  Result<bool> have_ended() const;

 private:
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(group_.members.size()); }
  CudaAllReduce call_of(const GpuMember& member, std::uint64_t bytes) const;
  InStreamCall in_stream_call_of(const GpuMember& member, std::uint64_t bytes) const;
  // Whether they can be held back until all have been launched.
  bool can_wait() const;
  Status launch_all(std::uint32_t times);
  Status launch_in_stream(std::uint32_t times);
  // From now on the ranks' queues may run. Returns when the last of them was told.
  Result<std::uint64_t> open();
  Result<bool> has_ended(const GpuMember& member) const;
  Result<bool> has_ended_in_stream(const GpuMember& member) const;

  GpuGroup& group_;
  const std::vector<TrialBuffers>& buffers_;
  GpuMeasurement what_;
  LaunchGate gate_;
  std::uint32_t number_ = 0;  // of the last operation that was launched
};

}  // namespace arcomm
