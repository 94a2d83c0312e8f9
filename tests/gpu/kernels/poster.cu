#include "kernels/device/ptx.cuh"
#include "tests/gpu/kernels/poster.h"

namespace arcomm::gpu {
namespace {

constexpr std::uint64_t kLimitNs = 2'000'000'000;

__global__ void post_kernel(DeviceMailbox* mailbox, std::uint32_t plan, std::uint32_t times) {
  MailboxPath& path = mailbox->paths[0];
  const std::uint64_t begin = device::global_nanoseconds();
  for (std::uint32_t i = 0; i < times; ++i) {
    const std::uint32_t number = atomicAdd(&path.posted, 1U) + 1;
    device::store_relaxed(&path.doorbell, to_word(Doorbell{.number = number, .plan = plan}));
    while (done_from(device::load_acquire(&path.done)).number != number) {
      if (device::load_acquire(&mailbox->closed) != 0) return;
      if (device::global_nanoseconds() - begin > kLimitNs) return;
    }
  }
}

__global__ void ring_kernel(DeviceMailbox* mailbox, std::uint64_t doorbell) {
  device::store_release(&mailbox->paths[0].doorbell, doorbell);
}

}  // namespace

cudaError_t post(DeviceMailbox* mailbox, std::uint32_t plan, std::uint32_t times,
                 cudaStream_t stream) {
  post_kernel<<<1, 1, 0, stream>>>(mailbox, plan, times);
  return cudaGetLastError();
}

cudaError_t ring(DeviceMailbox* mailbox, Doorbell doorbell, cudaStream_t stream) {
  ring_kernel<<<1, 1, 0, stream>>>(mailbox, to_word(doorbell));
  return cudaGetLastError();
}

}  // namespace arcomm::gpu
