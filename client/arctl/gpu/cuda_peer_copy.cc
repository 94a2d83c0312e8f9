#include "client/arctl/gpu/cuda_device.h"

namespace arcomm::arctl {

Status CudaPeerCopy::open(CUdevice from, CUdevice to, std::uint64_t bytes) {
  bytes_ = bytes;
  int reaches = 0;
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuDeviceCanAccessPeer_(&reaches, from, to),
                                    "asking whether a GPU reaches its neighbour"));
  if (reaches == 0) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported,
                 "a GPU does not reach its neighbour's memory");
  }
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuDevicePrimaryCtxRetain_(&there_, to),
                                    "creating a CUDA context on the neighbour"));
  to_ = to;
  // Memory belongs to the context that is current: first there, then here, which stays current.
  Status allocated = cuda_.checked(cuda_.cuCtxSetCurrent_(there_), "going to the neighbour");
  if (allocated.ok()) {
    allocated = cuda_.checked(cuda_.cuMemAlloc_(&target_, bytes), "allocating on the neighbour");
  }
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuCtxSetCurrent_(here_), "coming back to the own GPU"));
  ARC_RETURN_IF_ERROR(std::move(allocated));
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuMemAlloc_(&source_, bytes), "allocating GPU memory"));
  const CUresult enabled = cuda_.cuCtxEnablePeerAccess_(there_, 0);
  enabled_ = enabled == CUDA_SUCCESS;
  if (enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return {};
  return cuda_.checked(enabled, "reaching for the neighbour's memory");
}

Status CudaPeerCopy::enqueue() {
  return cuda_.checked(cuda_.cuMemcpyPeerAsync_(target_, there_, source_, here_, bytes_, stream_),
                       "copying to the neighbour");
}

// What fails here is no result's business: the process has its rate, and the driver tidies up when
// it ends.
CudaPeerCopy::~CudaPeerCopy() {
  if (enabled_) cuda_.cuCtxDisablePeerAccess_(there_);
  if (source_ != 0) cuda_.cuMemFree_(source_);
  if (there_ == nullptr) return;
  if (target_ != 0 && cuda_.cuCtxSetCurrent_(there_) == CUDA_SUCCESS) cuda_.cuMemFree_(target_);
  cuda_.cuCtxSetCurrent_(here_);
  cuda_.cuDevicePrimaryCtxRelease_(to_);
}

}  // namespace arcomm::arctl
