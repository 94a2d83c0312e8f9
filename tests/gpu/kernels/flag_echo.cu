#include "kernels/device/ptx.cuh"
#include "tests/gpu/kernels/flag_echo.h"

namespace arcomm::gpu {
namespace {

constexpr std::uint64_t kLimitNs = 2'000'000'000;

__global__ void ask(EchoWords* words, std::uint64_t times) {
  const std::uint64_t begin = device::global_nanoseconds();
  for (std::uint64_t i = 1; i <= times; ++i) {
    device::store_release(&words->asked, i);
    while (device::load_acquire(&words->answered) != i) {
      if (device::global_nanoseconds() - begin < kLimitNs) continue;
      device::store_release(&words->ns, ~std::uint64_t{0});
      return;
    }
  }
  device::store_release(&words->ns, device::global_nanoseconds() - begin);
}

}  // namespace

cudaError_t ask_for_echoes(EchoWords* words, std::uint64_t times, cudaStream_t stream) {
  ask<<<1, 1, 0, stream>>>(words, times);
  return cudaGetLastError();
}

}  // namespace arcomm::gpu
