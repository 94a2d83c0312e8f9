#include "client/cuda/cuda_in_stream.h"

#include <sys/stat.h>

#include <string>
#include <utility>

#include "proto/shared_mapping.h"

namespace arcomm::client {

Result<std::unique_ptr<CudaInStreamKernels>> CudaInStreamKernels::load(const CudaDriver& api,
                                                                       int image_fd) {
  std::unique_ptr<CudaInStreamKernels> kernels(new CudaInStreamKernels);
  struct stat facts {};
  if (::fstat(image_fd, &facts) != 0 || facts.st_size <= 0) {
    return error(ErrorCode::Internal, Reason::Version,
                 "the daemon's kernels cannot be read: are client and daemon of one version?");
  }
  kernels->device_ = facts.st_dev;
  kernels->file_ = facts.st_ino;
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  CUmodule module = nullptr;
  CUresult done = CUDA_SUCCESS;
  {
    const Result<SharedMapping> image =
        SharedMapping::map(image_fd, {.length_bytes = bytes,
                                      .access = SharedMapping::Access::ReadPrivate,
                                      .what = "the daemon's kernels"});
    if (!image) return image.error();
    done = api.cuModuleLoadData_(&module, image->data());  // keeps a copy
  }
  if (done != CUDA_SUCCESS) {
    return api.failed(done,
                      "loading the daemon's kernels (they are built for GPUs of sm_80 and "
                      "later)");
  }
  for (const auto& [algorithm, dtype, op] : all_in_stream_kernels()) {
    const Result<CudaKernel> loaded =
        load_kernel(api, module, in_stream_kernel_name(algorithm, dtype, op).c_str());
    if (!loaded) return loaded.error();
    kernels->functions_[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(dtype)]
                       [static_cast<std::size_t>(op)] = *loaded;
  }
  const Result<CudaKernel> waiting = load_kernel(api, module, kInStreamWaitName);
  if (!waiting) return waiting.error();
  kernels->waiting_ = *waiting;
  return kernels;
}

bool CudaInStreamKernels::is_of(int image_fd) const {
  struct stat facts {};
  return ::fstat(image_fd, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == file_;
}

}  // namespace arcomm::client
