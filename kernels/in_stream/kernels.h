// AllReduces that a client's own stream runs: kernels that need no daemon between call and links,
// and meet in memory that the ranks share (proto/gpu/exchange.h). The results are launch.h's, bit
// for bit. One image serves all GPUs from sm_80 on. The daemon hands it to its clients, which find
// a kernel in it by in_stream_kernel_name(). Built with CUDA only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "proto/gpu/in_stream_call.h"
#include "proto/status.h"

namespace arcomm {

std::span<const std::byte> in_stream_kernel_image();

// The image's kernels in this process, on one of its GPUs: for a process that runs in-stream
// operations without being a client. Any thread.
class InStreamKernels {
 public:
  // On the current GPU. Loads all kernels, which may wait for what runs there; launching then waits
  // for nothing.
  static Result<std::unique_ptr<InStreamKernels>> load();
  ~InStreamKernels();
  InStreamKernels(const InStreamKernels&) = delete;
  InStreamKernels& operator=(const InStreamKernels&) = delete;

  // Into `stream`, a cudaStream_t of that GPU, early where a client launches it early. `call` says
  // everything but what follows from the shape.
  Status launch(const InStreamShape& shape, DType dtype, ReduceOp op, InStreamCall call,
                void* stream) const;

 private:
  InStreamKernels() = default;

  struct Kernel {
    const void* function = nullptr;  // a cudaKernel_t
    bool early = false;              // may be launched so: proto/gpu/early_launch.h
  };

  void* library_ = nullptr;  // a cudaLibrary_t
  Kernel kernels_[kInStreamAlgorithms][kDTypes][kReduceOps] = {};
};

}  // namespace arcomm
