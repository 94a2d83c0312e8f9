// The echoes of flags of all GPUs of the worker: one is measured at a time, and one whose GPU has
// not come to it is in nobody's way but there. Thread: the worker's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/exec/gpu/measure/gpu_flag_echo.h"

namespace arcomm {

class GpuFlagEchoes {
 public:
  explicit GpuFlagEchoes(GpuGroups& groups);  // which outlives this
  ~GpuFlagEchoes();
  GpuFlagEchoes(const GpuFlagEchoes&) = delete;
  GpuFlagEchoes& operator=(const GpuFlagEchoes&) = delete;

  // Unavailable while another one is measured, or the last one of this GPU has not left.
  Status begin(std::uint32_t gpu);
  // As GpuFlagEcho's; Unavailable, too, where it was ended for somebody who came.
  Result<std::optional<FlagEcho>> go_on();
  // All are told to end, wherever they are.
  void end();
  // Lets go of those that have left.
  void tend();

 private:
  GpuGroups& groups_;
  std::vector<std::unique_ptr<GpuFlagEcho>> of_gpus_;  // null: there is none
  GpuFlagEcho* measured_ = nullptr;                    // one of them
};

}  // namespace arcomm
