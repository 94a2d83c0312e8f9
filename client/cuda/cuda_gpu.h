// A CUDA context of this process, as client/cuda/gpu.h wants it: the post kernel loaded in it, a
// stream of our own for words that go to and fro. Thread: any. Never destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cuda/cuda_in_stream.h"
#include "client/cuda/cuda_kernel.h"
#include "client/cuda/gpu.h"
#include "transport/device/cuda_driver.h"

namespace arcomm::client {

class CudaGpu final : public Gpu {
 public:
  // Slow: loads the kernel at once, whatever CUDA_MODULE_LOADING says, so that no post ever does.
  static Result<std::shared_ptr<CudaGpu>> create(const CudaDriver& api, CUcontext context);

  const std::string& uuid() const override { return uuid_; }
  int ordinal() const override { return device_; }
  Result<GpuRange> range_of(const void* address) override;
  Result<GpuExport> export_memory(const GpuRange& range) override;
  Result<std::unique_ptr<GpuChunk>> hold_chunk(const void* address) override;
  bool is_in_place(const GpuChunk& chunk) override;
  Result<GpuChunkExport> export_chunk(const GpuChunk& chunk) override;
  Result<std::unique_ptr<GpuMapping>> import_memory(int fd, std::uint64_t bytes) override;
  Result<std::unique_ptr<GpuMapping>> map_host(void* memory, std::size_t bytes) override;
  Result<bool> is_capturing(void* stream) override;
  Status post(const GpuPost& post, void* stream) override;
  Status post_by_memory(const MemoryPost& start, void* stream) override;
  Result<const InStreamKernels*> load_in_stream(int image_fd) override;
  Status launch_in_stream(const InStreamKernels& kernels, const InStreamShape& shape, DType dtype,
                          ReduceOp op, const InStreamCall& call, bool waits_behind,
                          void* stream) override;
  Status read(void* to, const void* from, std::size_t bytes,
              std::chrono::nanoseconds timeout) override;
  Status write(void* to, const void* from, std::size_t bytes,
               std::chrono::nanoseconds timeout) override;

 private:
  using Clock = std::chrono::steady_clock;

  CudaGpu(const CudaDriver& api, CUcontext context) : api_(api), context_(context) {}
  Status set_up();
  Status until_copied(Clock::time_point deadline);

  const CudaDriver& api_;
  CUcontext context_;
  CUdevice device_ = 0;
  std::string uuid_;
  CudaKernel post_;
  bool can_post_by_memory_ = false;
  CUstream stream_ = nullptr;
  std::mutex in_stream_mutex_;
  std::vector<std::unique_ptr<CudaInStreamKernels>> in_stream_;  // by image

  std::mutex mutex_;  // of what follows: one copy at a time
  CUevent copied_ = nullptr;
  void* staging_ = nullptr;  // pinned, kMailboxWithNotesBytes
  bool copying_ = false;     // a copy that did not end in its time still uses the staging memory
};

}  // namespace arcomm::client
