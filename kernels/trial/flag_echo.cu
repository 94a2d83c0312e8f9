#include <cuda_runtime_api.h>

#include "kernels/device/cuda_error.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/device/wait_budget.cuh"
#include "kernels/trial/flag_echo.h"

namespace arcomm {
namespace device {
namespace {

// Whom it waited for is always the CPU, and for which answer `asked` says.
struct EchoWatch {
  std::uint64_t timeout_ns;

  __device__ __forceinline__ bool goes_on(std::uint64_t& since, std::uint32_t) const {
    const std::uint64_t now = global_nanoseconds();
    if (since == 0) since = now;
    return now - since < timeout_ns;
  }
};

__device__ FlagEchoEnd ask(FlagEchoWords& words, std::uint64_t number,
                           WaitBudget<EchoWatch>& budget) {
  store_release(&words.asked, number);
  for (;;) {
    // Pairs with the CPU's release of the answer.
    const std::uint64_t answered = load_acquire(&words.answered);
    if (answered == number) return FlagEchoEnd::Answered;
    if (answered == kStopEcho) return FlagEchoEnd::Stopped;
    if (!budget.goes_on(0)) return FlagEchoEnd::TimedOut;
  }
}

__global__ void __launch_bounds__(1) echo(const __grid_constant__ FlagEchoCall call) {
  WaitBudget<EchoWatch> budget({call.timeout_ns});
  FlagEchoEnd end = FlagEchoEnd::Answered;
  for (std::uint64_t number = 1; number <= call.times && end == FlagEchoEnd::Answered; ++number)
    end = ask(*call.words, number, budget);
  store_release(&call.words->ended, static_cast<std::uint64_t>(end));
}

}  // namespace
}  // namespace device

Status launch_flag_echo(const FlagEchoCall& call, void* stream) {
  FlagEchoCall own = call;
  void* arguments[] = {&own};
  const cudaError_t launched =
      device::launch(reinterpret_cast<const void*>(device::echo), device::LaunchShape{},
                     static_cast<cudaStream_t>(stream), false, arguments);
  if (launched != cudaSuccess) return device::cuda_error(launched, "launching an echo of flags");
  return {};
}

Status load_flag_echo_kernel() {
  const cudaError_t loaded = device::load(device::echo);
  if (loaded != cudaSuccess)
    return device::cuda_error(loaded, "loading the kernel that echoes flags");
  return {};
}

}  // namespace arcomm
