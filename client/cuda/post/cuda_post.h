// Starts as CUDA puts them into callers' streams: by the post kernel, which travels in this library
// as a fatbin (post.cu), or by stream memory operations (memory_post.h).
// Thread: any, once loaded. The context that it was loaded in is current in every call.
#pragma once

#include <cstdint>

#include "client/cuda/cuda_kernel.h"
#include "client/cuda/post/memory_post.h"
#include "client/cuda/post/post.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

class CudaPost {
 public:
  // api: outlives this.
  explicit CudaPost(const CudaDriver& api) : api_(api) {}
  // Slow: loads the kernel at once, whatever CUDA_MODULE_LOADING says, so that no post ever does.
  Status load(CUdevice device);

  CUresult post(const GpuPost& post, CUstream stream) const;
  // Whether the GPU can write the 64-bit words that a start by memory operations needs.
  bool can_post_by_memory() const { return can_post_by_memory_; }
  // One more in *left, once what is before it in the stream is done.
  CUresult count(std::uint32_t* left, CUstream stream) const;
  // Nothing of it is captured.
  CUresult post_by_memory(const MemoryPost& start, CUstream stream) const;

 private:
  const CudaDriver& api_;
  CudaKernel kernel_, count_;
  bool can_post_by_memory_ = false;
};

}  // namespace arcomm::client
