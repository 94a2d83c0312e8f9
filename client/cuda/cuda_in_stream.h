// The in-stream kernels in one CUDA context, from the image that the daemon handed over. Never
// unloaded. Thread: any, once loaded.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>

#include "client/cuda/cuda_kernel.h"
#include "client/cuda/gpu.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

class CudaInStreamKernels final : public InStreamKernels {
 public:
  // The context is current.
  static Result<std::unique_ptr<CudaInStreamKernels>> load(const CudaDriver& api, int image_fd);

  bool is_of(int image_fd) const;  // the same file
  // Without a function where has_in_stream_kernel() says no.
  const CudaKernel& find(InStreamAlgorithm algorithm, DType dtype, ReduceOp op) const {
    return functions_[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(dtype)]
                     [static_cast<std::size_t>(op)];
  }

  const CudaKernel& waiting() const { return waiting_; }

 private:
  CudaInStreamKernels() = default;

  dev_t device_ = 0;
  ino_t file_ = 0;
  std::array<std::array<std::array<CudaKernel, kReduceOps>, kDTypes>, kInStreamAlgorithms>
      functions_{};
  CudaKernel waiting_;
};

}  // namespace arcomm::client
