// What the daemon takes of each GPU, step by step, in MiB as nvidia-smi counts them: its context,
// its streams and kernels, what a communicator adds before and after its first plan with slots, and
// what those between nodes take.
//   memory_stages [GPUs]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/exec/gpu/hardware/gpu_hardware.h"
#include "kernels/launch/cuda_scratch.h"
#include "transport/device/cuda/cuda_device.h"

namespace {

using namespace arcomm;  // NOLINT(google-build-using-namespace)

int used_mib() {
  std::FILE* const asked =
      ::popen("nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits", "r");
  int used = -1;
  if (asked != nullptr && std::fscanf(asked, "%d", &used) != 1) used = -1;
  if (asked != nullptr) ::pclose(asked);
  return used;
}

int last = 0;
void stage(const char* what) {
  const int now = used_mib();
  std::printf("%-44s %6d MiB %+6d\n", what, now, now - last);
  std::fflush(stdout);
  last = now;
}

template <typename T>
T need(Result<T> made) {
  if (made) return std::move(made).value();
  std::fprintf(stderr, "%s\n", made.error().to_string().c_str());
  std::exit(1);
}

void print_stacks() {
  std::size_t bytes = 0;
  if (cudaDeviceGetLimit(&bytes, cudaLimitStackSize) != cudaSuccess) std::exit(1);
  std::printf("  a thread's stack: %zu bytes\n", bytes);
}

}  // namespace

int main(int arguments, char** words) {
  const int gpus = arguments > 1 ? std::atoi(words[1]) : 1;
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  stage("nothing");
  std::vector<int> peers;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    if (cudaSetDevice(gpu) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) return 1;
    peers.push_back(gpu);
  }
  stage("contexts");
  print_stacks();
  std::vector<std::unique_ptr<CudaDevice>> devices;
  for (const int gpu : peers)
    devices.push_back(need(CudaDevice::create({.ordinal = gpu, .peers = peers})));
  stage("peer access, clearing");
  std::vector<GpuHardware> hardware;
  for (const auto& device : devices) hardware.push_back(need(open_gpu(*device)));
  stage("streams and kernels");
  print_stacks();
  const auto ranks = static_cast<std::uint32_t>(std::max(2, gpus));
  std::vector<Memory> scratch;
  for (const auto& device : devices)
    scratch.push_back(
        need(device->allocate_growing(cuda_state_bytes(ranks), cuda_scratch_bytes(ranks))));
  stage("scratch of a communicator");
  for (Memory& memory : scratch) {
    if (const Status grown = memory.grow(cuda_scratch_bytes(ranks)); !grown) {
      std::fprintf(stderr, "%s\n", grown.error().to_string().c_str());
      return 1;
    }
  }
  stage("its slots");
  scratch.clear();
  stage("without it");
  for (const GpuHardware& one : hardware) {
    if (const Status loaded = one.launcher->load_network(); !loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().to_string().c_str());
      return 1;
    }
  }
  stage("stacks of kernels between nodes");
  print_stacks();
  return 0;
}
