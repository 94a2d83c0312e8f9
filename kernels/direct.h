// AllReduces that a client's own stream runs: kernels that need no daemon between call and links,
// through memory that the ranks share (proto/direct_exchange.h). The results are launch.h's, bit
// for bit. The image is one for all GPUs from sm_80 on; the daemon hands it to its clients, which
// find in it what direct_kernel_name() says. Built with CUDA only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "proto/direct_exchange.h"
#include "proto/status.h"

namespace arcomm {

std::span<const std::byte> direct_kernel_image();

// The image's kernels in this process, on one of its GPUs: for who runs direct operations without
// being a client. Any thread.
class DirectKernels {
 public:
  // Of the GPU that is current. Loads them all, which may wait for what runs there; launching then
  // waits for nothing.
  static Result<std::unique_ptr<DirectKernels>> load();
  ~DirectKernels();
  DirectKernels(const DirectKernels&) = delete;
  DirectKernels& operator=(const DirectKernels&) = delete;

  // Into `stream`, a cudaStream_t of that GPU, as early as a client launches it. `call` says all
  // but what follows from the shape.
  Status launch(const DirectShape& shape, DType dtype, ReduceOp op, DirectCall call,
                void* stream) const;

 private:
  DirectKernels() = default;

  void* library_ = nullptr;                                           // a cudaLibrary_t
  const void* kernels_[kDirectAlgorithms][kDTypes][kReduceOps] = {};  // cudaKernel_t
};

}  // namespace arcomm
