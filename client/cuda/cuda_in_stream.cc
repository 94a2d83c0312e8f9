#include "client/cuda/cuda_in_stream.h"

#include <sys/stat.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

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
  Result<SharedMapping> images =
      SharedMapping::map(image_fd, {.length_bytes = bytes,
                                    .access = SharedMapping::Access::ReadPrivate,
                                    .what = "the daemon's kernels"});
  if (!images) return std::move(images).error();
  kernels->images_ = std::move(*images);
  ARC_RETURN_IF_ERROR(kernels->load_codec(api, Codec::None));
  return kernels;
}

Status CudaInStreamKernels::load_codec(const CudaDriver& api, Codec codec) {
  if (has_codec(codec)) return {};
  InStreamDirectory directory;
  if (images_.bytes() >= sizeof(directory))
    std::memcpy(&directory, images_.data(), sizeof(directory));
  if (!directory.has(codec, images_.bytes())) {
    return error(ErrorCode::Internal, Reason::Version, "the daemon has handed over no kernels ",
                 codec == Codec::None ? "" : "for codec ",
                 codec == Codec::None ? std::string_view() : text_of(codec),
                 ": are client and daemon of one version?");
  }
  CUmodule module = nullptr;
  const std::byte* const image =
      images_.data() + directory.images[static_cast<std::size_t>(codec)].offset;
  const CUresult done = api.cuModuleLoadData_(&module, image);  // keeps a copy
  if (done != CUDA_SUCCESS) {
    return api.failed(done,
                      "loading the daemon's kernels (they are built for GPUs of sm_80 and "
                      "later)");
  }
  auto kernels = std::make_unique<Kernels>();
  for (const auto& [algorithm, dtype, op] : all_in_stream_kernels(codec)) {
    const Result<CudaKernel> loaded =
        load_kernel(api, module, in_stream_kernel_name(algorithm, dtype, op, codec).c_str());
    if (!loaded) return loaded.error();
    (*kernels)[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(dtype)]
              [static_cast<std::size_t>(op)] = *loaded;
  }
  if (codec == Codec::None) {
    const Result<CudaKernel> waiting = load_kernel(api, module, kInStreamWaitName);
    if (!waiting) return waiting.error();
    waiting_ = *waiting;
  }
  by_codec_[static_cast<std::size_t>(codec)].store(kernels.get(), std::memory_order_release);
  kernels_[static_cast<std::size_t>(codec)] = std::move(kernels);
  return {};
}

bool CudaInStreamKernels::is_of(int image_fd) const {
  struct stat facts {};
  return ::fstat(image_fd, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == file_;
}

}  // namespace arcomm::client
