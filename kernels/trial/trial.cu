#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/device/cuda_error.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/trial/trial.h"

namespace arcomm {
namespace device {
namespace {

constexpr std::uint32_t kThreads = 512, kMostBlocks = 1024;
constexpr std::uint16_t kPoison = 0xffff;  // a NaN that no kernel makes: theirs are canonical
using Stored = BFloat16::Stored;

__device__ Stored stored(std::int32_t value) {
  return BFloat16::narrow(static_cast<float>(value));
}

__global__ void __launch_bounds__(kThreads) fill(const __grid_constant__ TrialCall call) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < call.count;
       i += stride) {
    static_cast<Stored*>(call.send)[i] = stored(trial_value(call.seed, call.rank, i));
    static_cast<Stored*>(call.recv)[i] = kPoison;
  }
}

// Who finds one tells of it with a plain store: any of those that are wrong will do.
__global__ void __launch_bounds__(kThreads) check(const __grid_constant__ TrialCall call) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < call.count;
       i += stride) {
    const bool is_right =
        static_cast<const Stored*>(call.send)[i] == stored(trial_value(call.seed, call.rank, i)) &&
        static_cast<const Stored*>(call.recv)[i] == stored(trial_sum(call.seed, call.ranks, i));
    if (!is_right) *static_cast<volatile std::uint64_t*>(call.wrong) = i + 1;
  }
}

Status launch_trial(void (*kernel)(TrialCall), const TrialCall& call, void* stream) {
  LaunchShape shape{.threads = kThreads};
  shape.blocks =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(call.count / kThreads, 1, kMostBlocks));
  TrialCall own = call;
  void* arguments[] = {&own};
  const cudaError_t launched = launch(reinterpret_cast<const void*>(kernel), shape,
                                      static_cast<cudaStream_t>(stream), false, arguments);
  if (launched != cudaSuccess) return cuda_error(launched, "launching a trial of a kernel");
  return {};
}

}  // namespace
}  // namespace device

Status launch_trial_fill(const TrialCall& call, void* stream) {
  return device::launch_trial(device::fill, call, stream);
}

Status launch_trial_check(const TrialCall& call, void* stream) {
  return device::launch_trial(device::check, call, stream);
}

Status load_trial_kernels() {
  cudaError_t loaded = device::load(device::fill);
  if (loaded == cudaSuccess) loaded = device::load(device::check);
  if (loaded != cudaSuccess) return device::cuda_error(loaded, "loading the kernels of trials");
  return {};
}

}  // namespace arcomm
