// A stream of a GPU for the tests and benchmarks here, which launch kernels by themselves; the
// daemon's queues are kernels/launch/cuda_queue.h. Thread: any one at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>

#include "proto/status.h"

namespace arcomm::gpu {

class GpuStream {
 public:
  static Result<std::unique_ptr<GpuStream>> create(int ordinal);
  ~GpuStream();  // waits for what was enqueued
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  cudaStream_t handle() const { return stream_; }
  bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }
  // DeadlineExceeded where it was not empty in time.
  Status synchronize(std::chrono::nanoseconds timeout) const;

 private:
  GpuStream(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}

  int ordinal_;
  cudaStream_t stream_;
};

}  // namespace arcomm::gpu
