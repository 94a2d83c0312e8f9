// Times a flag from a kernel on one GPU to the CPU and back: what a step between nodes costs beside
// the network. The kernel asks only within one turn of the worker, which answers it for
// milliseconds and then lets it go. Thread: the worker's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/exec/specs.h"
#include "kernels/trial/flag_echo.h"

namespace arcomm {

class GpuFlagEcho {
 public:
  // On that GPU of `groups`, which outlives this.
  static Result<std::unique_ptr<GpuFlagEcho>> begin(GpuGroups& groups, std::uint32_t gpu);
  ~GpuFlagEcho();
  GpuFlagEcho(const GpuFlagEcho&) = delete;
  GpuFlagEcho& operator=(const GpuFlagEcho&) = delete;

  // None: call again, in another turn, unless it is over by then. Unavailable: other work keeps the
  // GPU or this thread's core busy; it may be begun again.
  Result<std::optional<FlagEcho>> go_on();
  // Tells the kernel to end, wherever it is.
  void stop();
  // It was told to end: by go_on(), or for somebody who came.
  bool is_over() const { return is_stopped_; }
  // It is, or was, on the GPU, which it leaves within microseconds of being told.
  bool has_begun() const { return __atomic_load_n(&words().asked, __ATOMIC_ACQUIRE) != 0; }
  // Tells it to end, and says whether the GPU has nothing more of it.
  bool has_left();
  Error is_kept_busy() const;

 private:
  explicit GpuFlagEcho(GpuEngine& engine) : engine_(engine) {}
  Status launch();
  FlagEchoWords& words() const { return engine_.launcher().flag_echo_words(); }
  Result<FlagEcho> answer();

  GpuEngine& engine_;
  std::uint64_t limit_ns_ = 0;  // when it should have begun
  bool is_stopped_ = false;
};

}  // namespace arcomm
