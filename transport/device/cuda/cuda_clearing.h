// Zeroes memory of one GPU in a bounded time, also while other work fills it. What clears memory
// fast is a kernel, and one that finds no room waits for as long as that work lasts: so it is tried
// on memory of this class's own whether there is room, and where there is none a copy engine brings
// zeros from the host (50 GB/s instead of 2,700 on an H100 with PCIe 5). Thread: any.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "proto/status.h"
#include "transport/device/cuda/cuda_mapping.h"
#include "transport/device/memory.h"

namespace arcomm {

class CudaClearing {
 public:
  // The GPU is current.
  static Result<std::unique_ptr<CudaClearing>> create();
  // Waits for nothing: what the GPU may still write to is left to the driver.
  ~CudaClearing();
  CudaClearing(const CudaClearing&) = delete;
  CudaClearing& operator=(const CudaClearing&) = delete;

  // The GPU is current. What `make` makes of so many bytes, all zero, or the error says why not:
  // Unavailable where the GPU did not come to it in time. Then it is kept, as zeros may still be
  // stored there, later; the next call for as many bytes gets it, and goes on with it.
  using Make = std::function<Result<CudaMapping>()>;
  struct Provided {
    std::shared_ptr<const void> token;  // before the mapping: goes after it
    CudaMapping mapping;
  };
  // most_bytes: as CudaMapping::create's, which `make` is to pass on. token: of who pays for it,
  // instead of who asked for it before.
  Result<Provided> provide(std::uint64_t bytes, std::uint64_t most_bytes,
                           std::shared_ptr<const void> token, const Make& make,
                           std::chrono::nanoseconds timeout);
  // What is kept and has not been asked for again for a second, once nothing is stored there any
  // more. Where its room is needed, 200 ms, and at once where only this has its token, as whoever
  // waits for it has that, too.
  std::vector<Provided> take_abandoned(bool is_needed);
  bool keeps() const;  // anything
  // A kernel of it has not ended: one that tried whether there is room, perhaps.
  bool has_kernel() const;

 private:
  struct Job {
    std::shared_ptr<const void> token;  // before the mapping: goes after it
    CudaMapping mapping;
    std::chrono::steady_clock::time_point asked_at;
    std::uint64_t asked_bytes = 0;  // 0: nobody gets it
    std::uint64_t most_bytes = 0;
    bool is_by_kernel = false;
    std::uint64_t queued_bytes = 0;  // zeros for them are stored, or in the stream
  };

  CudaClearing() = default;
  bool has_room();  // a kernel is run at once
  cudaError_t go_on(Job& job, std::chrono::steady_clock::time_point until);
  bool is_idle() const;

  mutable std::mutex mutex_;
  cudaStream_t kernels_ = nullptr, copies_ = nullptr;
  void* tried_ = nullptr;  // device memory
  void* zeros_ = nullptr;  // pinned host memory
  std::vector<Job> kept_;
};

}  // namespace arcomm
