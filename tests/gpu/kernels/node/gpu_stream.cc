#include "tests/gpu/kernels/node/gpu_stream.h"

#include <algorithm>
#include <thread>

#include "transport/device/cuda/cuda_runtime.h"

namespace arcomm::gpu {

Result<std::unique_ptr<GpuStream>> GpuStream::create(int ordinal) {
  const CurrentCudaDevice current(ordinal);
  cudaStream_t stream = nullptr;
  const cudaError_t made = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (made != cudaSuccess) return cuda_error(made, "making a stream");
  return std::unique_ptr<GpuStream>(new GpuStream(ordinal, stream));
}

GpuStream::~GpuStream() {
  const CurrentCudaDevice current(ordinal_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

// The runtime has no wait with a deadline: look, and sleep longer the longer it takes.
Status GpuStream::synchronize(std::chrono::nanoseconds timeout) const {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto pause = std::chrono::nanoseconds(0);
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaSuccess) return {};
    if (state != cudaErrorNotReady) return cuda_error(state, "the end of the stream");
    const auto waited = Clock::now() - start;
    if (waited >= timeout) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                   "the end of the stream was not reached within ",
                   std::chrono::duration_cast<std::chrono::microseconds>(timeout).count(), " us");
    }
    if (waited < std::chrono::microseconds(50)) continue;
    pause = std::min<std::chrono::nanoseconds>(pause + std::chrono::microseconds(5),
                                               std::chrono::milliseconds(1));
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace arcomm::gpu
