#include "kernels/device/scratch.cuh"
#include "tests/gpu/kernels/aged_scratch.h"

namespace arcomm::gpu {
namespace {

__global__ void age(device::Scratch* scratch, std::uint32_t before) {
  scratch->gates[0] = scratch->gates[1] = before / 2;
  scratch->progress = {.number = before, .gated = before};
}

}  // namespace

cudaError_t age_scratch(void* scratch, std::uint32_t before, cudaStream_t stream) {
  age<<<1, 1, 0, stream>>>(static_cast<device::Scratch*>(scratch), before);
  return cudaGetLastError();
}

}  // namespace arcomm::gpu
