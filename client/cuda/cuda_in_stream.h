// The in-stream kernels in one CUDA context, from the images that the daemon handed over
// (proto/gpu/in_stream_images.h): those that need no codec at once, a codec's when it is asked for.
// Never unloaded. Thread: any, once loaded; one at a time for load_codec().
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <memory>

#include "client/cuda/cuda_kernel.h"
#include "client/cuda/gpu.h"
#include "proto/gpu/in_stream_images.h"
#include "proto/shared_mapping.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

class CudaInStreamKernels final : public InStreamKernels {
 public:
  // The context is current, here and below.
  static Result<std::unique_ptr<CudaInStreamKernels>> load(const CudaDriver& api, int image_fd);

  bool is_of(int image_fd) const;  // the same file
  Status load_codec(const CudaDriver& api, Codec codec);
  bool has_codec(Codec codec) const {
    return by_codec_[static_cast<std::size_t>(codec)].load(std::memory_order_acquire) != nullptr;
  }
  // Precondition: has_codec(codec). Without a function where has_in_stream_kernel() says no.
  const CudaKernel& find(InStreamAlgorithm algorithm, DType dtype, ReduceOp op, Codec codec) const {
    const Kernels& kernels =
        *by_codec_[static_cast<std::size_t>(codec)].load(std::memory_order_acquire);
    return kernels[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(dtype)]
                  [static_cast<std::size_t>(op)];
  }

  const CudaKernel& waiting() const { return waiting_; }

 private:
  using Kernels =
      std::array<std::array<std::array<CudaKernel, kReduceOps>, kDTypes>, kInStreamAlgorithms>;

  CudaInStreamKernels() = default;

  dev_t device_ = 0;
  ino_t file_ = 0;
  SharedMapping images_;  // pages of a codec's come in when it is loaded
  std::array<std::unique_ptr<Kernels>, kCodecs> kernels_{};
  std::array<std::atomic<const Kernels*>, kCodecs> by_codec_{};  // those that are whole
  CudaKernel waiting_;
};

}  // namespace arcomm::client
