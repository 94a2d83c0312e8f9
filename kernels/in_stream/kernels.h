// AllReduces that a client's own stream runs: kernels that need no daemon between call and links,
// and meet in memory that the ranks share (proto/gpu/exchange.h). The results are launch.h's, bit
// for bit, and with a codec those of codec/README.md. There is an image for each codec, and one of
// the kernels that need none; each serves all GPUs from sm_80 on. The daemon hands them to its
// clients, which find a kernel by in_stream_kernel_name(). Built with CUDA only.
#pragma once

#include <memory>

#include "proto/gpu/in_stream_call.h"
#include "proto/gpu/in_stream_images.h"
#include "proto/status.h"

namespace arcomm {

InStreamImages in_stream_kernel_images();

// The images' kernels in this process, on one of its GPUs: for a process that runs in-stream
// operations without being a client. Any thread.
class InStreamKernels {
 public:
  // On the current GPU. Loads all kernels that need no codec, which may wait for what runs there;
  // launching then waits for nothing.
  static Result<std::unique_ptr<InStreamKernels>> load();
  // A codec's, too, in the same way. Not beside launch().
  Status load(Codec codec);
  ~InStreamKernels();
  InStreamKernels(const InStreamKernels&) = delete;
  InStreamKernels& operator=(const InStreamKernels&) = delete;

  // Into `stream`, a cudaStream_t of that GPU, early where a client launches it early. `call` says
  // everything but what follows from the shape. InvalidArgument where no such kernel is loaded.
  Status launch(const InStreamShape& shape, DType dtype, ReduceOp op, InStreamCall call,
                void* stream, Codec codec = Codec::None) const;

 private:
  InStreamKernels() = default;

  struct Kernel {
    const void* function = nullptr;  // a cudaKernel_t
    bool early = false;              // may be launched so: proto/gpu/early_launch.h
  };

  // By codec.
  void* libraries_[kCodecs] = {};  // a cudaLibrary_t each
  Kernel kernels_[kCodecs][kInStreamAlgorithms][kDTypes][kReduceOps] = {};
};

}  // namespace arcomm
