// The image, loaded into this process.
#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "kernels/device/cuda_error.cuh"
#include "kernels/direct.h"

namespace arcomm {

using device::cuda_error;

Result<std::unique_ptr<DirectKernels>> DirectKernels::load() {
  std::unique_ptr<DirectKernels> made(new DirectKernels);
  const std::span<const std::byte> image = direct_kernel_image();
  cudaLibrary_t library = nullptr;
  cudaError_t done =
      cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (done != cudaSuccess) return cuda_error(done, "loading the kernels that clients launch");
  made->library_ = library;
  for (const auto& [algorithm, dtype, op] : all_direct_kernels()) {
    const std::string name = direct_kernel_name(algorithm, dtype, op);
    cudaKernel_t kernel = nullptr;
    done = cudaLibraryGetKernel(&kernel, library, name.c_str());
    const void* const handle = kernel;
    cudaFuncAttributes attributes{};
    // Asked for, it is on the GPU: else it would be loaded by its first launch, which may be behind
    // something that waits for this very thread.
    if (done == cudaSuccess) done = cudaFuncGetAttributes(&attributes, handle);
    if (done != cudaSuccess) return cuda_error(done, ("loading " + name).c_str());
    made->kernels_[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(dtype)]
                  [static_cast<std::size_t>(op)] = handle;
  }
  return Result<std::unique_ptr<DirectKernels>>(std::move(made));
}

DirectKernels::~DirectKernels() {
  if (library_ != nullptr) cudaLibraryUnload(static_cast<cudaLibrary_t>(library_));
}

Status DirectKernels::launch(const DirectShape& shape, DType dtype, ReduceOp op, DirectCall call,
                             void* stream) const {
  const void* const kernel =
      kernels_[static_cast<std::size_t>(shape.algorithm)][static_cast<std::size_t>(dtype)]
              [static_cast<std::size_t>(op)];
  if (kernel == nullptr || shape.blocks == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "no direct operation of ",
                 text_of(dtype), " ", text_of(op), " in ", shape.blocks, " blocks");
  }
  call.what = shape.what(dtype, op);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = kDirectBlockThreads;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = 1;
  void* arguments[] = {&call};
  const cudaError_t done = cudaLaunchKernelExC(&config, kernel, arguments);
  if (done != cudaSuccess) return cuda_error(done, "launching a direct operation");
  return {};
}

}  // namespace arcomm
