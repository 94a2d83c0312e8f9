#include <cuda_runtime_api.h>

#include "kernels/device/cuda_error.cuh"
#include "kernels/launch/cuda_event_ring.h"

namespace arcomm {

Result<CudaEventRing> CudaEventRing::create(int ordinal, std::uint32_t events) {
  CudaEventRing ring;
  ring.ordinal_ = ordinal;
  ring.events_.resize(events);
  cudaError_t made = cudaSetDevice(ordinal);
  for (void*& event : ring.events_) {
    cudaEvent_t one = nullptr;
    if (made == cudaSuccess) made = cudaEventCreateWithFlags(&one, cudaEventDisableTiming);
    event = one;
  }
  if (made != cudaSuccess) return device::cuda_error(made, "creating a GPU's events");
  return Result<CudaEventRing>(std::move(ring));
}

CudaEventRing::~CudaEventRing() {
  if (ordinal_ < 0 || cudaSetDevice(ordinal_) != cudaSuccess) return;
  for (void* event : events_) {
    if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
}

void* CudaEventRing::next() {
  void* const event = events_[next_];
  next_ = (next_ + 1) % events_.size();
  return event;
}

}  // namespace arcomm
