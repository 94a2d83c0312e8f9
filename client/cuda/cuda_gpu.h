// A CUDA context of this process, as client/cuda/gpu.h wants it. Thread: any. Never destroyed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cuda/cuda_copy_stream.h"
#include "client/cuda/cuda_in_stream.h"
#include "client/cuda/gpu.h"
#include "client/cuda/post/cuda_post.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

class CudaGpu final : public Gpu {
 public:
  // Slow: loads the post kernel. api: outlives it.
  static Result<std::shared_ptr<CudaGpu>> create(const CudaDriver& api, CUcontext context);
  // "GPU-..."
  static Result<std::string> uuid_of(const CudaDriver& api, CUdevice device);

  const std::string& uuid() const override { return uuid_; }
  int ordinal() const override { return device_; }
  Result<GpuRange> range_of(const void* address) override;
  Result<GpuIpcHandle> export_memory(const GpuRange& range) override;
  Result<std::unique_ptr<GpuChunk>> hold_chunk(const void* address) override;
  bool is_in_place(const GpuChunk& chunk) override;
  Result<MemoryChunk> export_chunk(const GpuChunk& chunk) override;
  Result<std::unique_ptr<GpuMapping>> import_memory(int fd, std::uint64_t bytes) override;
  Result<std::unique_ptr<GpuMapping>> map_host(void* memory, std::size_t bytes) override;
  Result<bool> is_capturing(void* stream) override;
  Status post(const GpuPost& post, void* stream) override;
  Status post_by_memory(const MemoryPost& start, void* stream) override;
  Result<const InStreamKernels*> load_in_stream(int image_fd) override;
  Status load_codec(const InStreamKernels& kernels, Codec codec) override;
  Status launch_in_stream(const InStreamKernels& kernels, const InStreamShape& shape, DType dtype,
                          ReduceOp op, const InStreamCall& call, bool waits_behind,
                          void* stream) override;
  Status copy(void* to, const void* from, std::uint64_t bytes, std::uint32_t* left,
              void* stream) override;
  Status read(void* to, const void* from, std::size_t bytes,
              std::chrono::nanoseconds timeout) override;
  Status write(void* to, const void* from, std::size_t bytes,
               std::chrono::nanoseconds timeout) override;

 private:
  CudaGpu(const CudaDriver& api, CUcontext context)
      : api_(api), context_(context), post_(api), copies_(api) {}
  Status set_up();

  const CudaDriver& api_;
  CUcontext context_;
  CUdevice device_ = 0;
  std::string uuid_;
  CudaPost post_;
  CudaCopyStream copies_;
  std::mutex in_stream_mutex_;
  std::vector<std::unique_ptr<CudaInStreamKernels>> in_stream_;  // by image
};

}  // namespace arcomm::client
