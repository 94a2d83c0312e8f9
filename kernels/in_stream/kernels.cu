// The images, loaded into this process.
#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "kernels/device/cuda_error.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/in_stream/kernels.h"

namespace arcomm {

using device::cuda_error;

Result<std::unique_ptr<InStreamKernels>> InStreamKernels::load() {
  std::unique_ptr<InStreamKernels> made(new InStreamKernels);
  ARC_RETURN_IF_ERROR(made->load(Codec::None));
  return Result<std::unique_ptr<InStreamKernels>>(std::move(made));
}

Status InStreamKernels::load(Codec codec) {
  const auto number = static_cast<std::size_t>(codec);
  if (libraries_[number] != nullptr) return {};
  cudaLibrary_t library = nullptr;
  cudaError_t done = cudaLibraryLoadData(&library, in_stream_kernel_images()[number].data(),
                                         nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (done != cudaSuccess) return cuda_error(done, "loading the kernels that clients launch");
  libraries_[number] = library;
  for (const auto& [algorithm, dtype, op] : all_in_stream_kernels(codec)) {
    const std::string name = in_stream_kernel_name(algorithm, dtype, op, codec);
    cudaKernel_t kernel = nullptr;
    done = cudaLibraryGetKernel(&kernel, library, name.c_str());
    const void* const handle = kernel;
    // Its first launch would load it otherwise, and that may be behind something that waits for
    // this very thread.
    if (done == cudaSuccess) done = device::load(handle);
    bool early = false;
    if (done == cudaSuccess) done = device::ask_for_early_launch(handle, early);
    if (done != cudaSuccess) return cuda_error(done, ("loading " + name).c_str());
    kernels_[number][static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(dtype)]
            [static_cast<std::size_t>(op)] = {.function = handle, .early = early};
  }
  return {};
}

InStreamKernels::~InStreamKernels() {
  for (void* const library : libraries_) {
    if (library != nullptr) cudaLibraryUnload(static_cast<cudaLibrary_t>(library));
  }
}

Status InStreamKernels::launch(const InStreamShape& shape, DType dtype, ReduceOp op,
                               InStreamCall call, void* stream, Codec codec) const {
  const Kernel& kernel =
      kernels_[static_cast<std::size_t>(codec)][static_cast<std::size_t>(shape.algorithm)]
              [static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  if (kernel.function == nullptr || shape.blocks == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "no in-stream operation of ",
                 text_of(dtype), " ", text_of(op), ", codec ", text_of(codec), ", in ",
                 shape.blocks, " blocks");
  }
  call.say(shape.what(dtype, op, codec, Collective::AllReduce), call.identity());
  void* arguments[] = {&call};
  const cudaError_t done =
      device::launch(kernel.function, {.blocks = shape.blocks, .threads = kInStreamBlockThreads},
                     static_cast<cudaStream_t>(stream), kernel.early, arguments);
  if (done != cudaSuccess) return cuda_error(done, "launching an in-stream operation");
  return {};
}

}  // namespace arcomm
