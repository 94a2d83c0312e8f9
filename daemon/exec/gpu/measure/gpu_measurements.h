// What is measured between or on a worker's GPUs for operators, one thing at a time, and only while
// no communicator is on them: clients come first. Thread: the worker's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/exec/gpu/measure/gpu_bench.h"
#include "daemon/exec/gpu/measure/gpu_flag_echoes.h"
#include "daemon/exec/specs.h"

namespace arcomm {

// Backend says what each of these is (daemon/exec/backend.h).
class GpuMeasurements {
 public:
  explicit GpuMeasurements(GpuGroups& groups) : groups_(groups) {}

  Status begin(std::uint32_t ranks, std::uint64_t room_bytes);
  Result<std::optional<std::uint64_t>> prepare();
  Status measure(GpuMeasurement what);
  Result<std::optional<double>> measured();
  Status begin_flag_echo(std::uint32_t gpu);
  Result<std::optional<FlagEcho>> flag_echo();
  void end();
  void tend() { echoes_.tend(); }

 private:
  Status check_may_measure();

  GpuGroups& groups_;                // outlives this
  std::unique_ptr<GpuBench> bench_;  // while somebody measures kernels
  GpuFlagEchoes echoes_{groups_};
};

}  // namespace arcomm
